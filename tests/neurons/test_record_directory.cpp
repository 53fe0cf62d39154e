// Records of neurons in a block namespace: every row is where the directory says, and reads fetch what is wanted.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/neurons/model/record_directory.h"

namespace test_record_directory {

using namespace csdsim;
using namespace csdsim::host;

namespace {

constexpr Bytes kBlock{512};

RecordFormat format(RecordLayout layout, bool aligned, std::uint64_t row, std::uint32_t matrices) {
  return {.layers = 3,
          .neurons = 50,
          .matrices = matrices,
          .row = {row},
          .layout = layout,
          .aligned = aligned,
          .block_size = kBlock,
          .first_block = 7};
}

}  // namespace

TEST_CASE("a record of OPT-6.7B is 16 KiB, and two rows of 8 KiB without bundling", "[neurons]") {
  RecordFormat opt{.layers = 32,
                   .neurons = 16384,
                   .matrices = 2,
                   .row = {4096 * 2},
                   .layout = RecordLayout::bundled,
                   .aligned = true,
                   .block_size = Bytes::kib(4)};
  const RecordDirectory bundled(opt);
  CHECK(opt.neuron() == Bytes::kib(16));
  CHECK(bundled.blocks() == 32ULL * 16384 * 4);
  CHECK(bundled.smallest_chunk() == Bytes::kib(16));
  const std::vector<std::uint32_t> wanted{3, 4, 5, 100};
  const auto reads = bundled.reads(LayerId{1}, wanted, Bytes::kib(32));
  const std::uint64_t layer = 16384 * 4;
  REQUIRE(reads.size() == 3);
  CHECK(reads[0].extent == Extent{layer + 12, 8});
  CHECK(reads[1].extent == Extent{layer + 20, 4});
  CHECK(reads[2].extent == Extent{layer + 400, 4});
  CHECK(reads[0].parts.size() == 4);

  opt.layout = RecordLayout::rows;
  const RecordDirectory rows(opt);
  CHECK(rows.smallest_chunk() == Bytes::kib(8));
  CHECK(rows.reads(LayerId{1}, wanted, Bytes::kib(8)).size() == 8);
  CHECK(rows.address(LayerId{0}, 2, 1) == Bytes::kib(8) * 16384 + Bytes::kib(8) * 2);
}

TEST_CASE("rows never overlap, and layers and matrices start at blocks", "[neurons]") {
  const auto layout = GENERATE(RecordLayout::rows, RecordLayout::bundled);
  const bool aligned = GENERATE(true, false);
  const std::uint64_t row = GENERATE(200, 512, 700);
  const std::uint32_t matrices = GENERATE(2, 3);
  CAPTURE(layout, aligned, row, matrices);
  const RecordDirectory directory(format(layout, aligned, row, matrices));
  std::map<std::uint64_t, std::uint64_t> taken;
  for (std::uint32_t layer = 0; layer < 3; ++layer)
    for (std::uint32_t neuron = 0; neuron < 50; ++neuron)
      for (std::uint32_t matrix = 0; matrix < matrices; ++matrix)
        REQUIRE(taken.emplace(directory.address(LayerId{layer}, neuron, matrix).value, row).second);
  std::uint64_t end = kBlock.value * 7;
  for (const auto& [start, size] : taken) {
    REQUIRE(start >= end);
    end = start + size;
  }
  CHECK(end <= kBlock.value * (7 + directory.blocks()));
  // Without alignment, only the ends of layers and matrices are empty.
  if (!aligned) CHECK(kBlock.value * directory.blocks() - 3 * 50 * matrices * row < 3 * matrices * kBlock.value);
  CHECK(directory.layer(LayerId{2}).end() == 7 + directory.blocks());
  if (aligned || layout == RecordLayout::rows) CHECK(directory.address(LayerId{1}, 0, 0).value % kBlock.value == 0);
  CHECK_THROWS_AS(directory.address(LayerId{3}, 0, 0), InternalError);
  CHECK_THROWS_AS(directory.address(LayerId{0}, 50, 0), InternalError);
}

TEST_CASE("reads hold every wanted row once, within their chunk", "[neurons]") {
  const auto layout = GENERATE(RecordLayout::rows, RecordLayout::bundled);
  const bool aligned = GENERATE(true, false);
  const std::uint64_t row = GENERATE(100, 512, 700);
  const std::uint64_t chunks = GENERATE(0, 1, 5, 100);
  CAPTURE(layout, aligned, row, chunks);
  const RecordFormat sizes = format(layout, aligned, row, 2);
  const RecordDirectory directory(sizes);
  const Bytes chunk = directory.smallest_chunk() + kBlock * chunks;
  Rng rng(row + chunks, "reads of records");
  for (int round = 0; round < 50; ++round) {
    std::set<std::uint32_t> chosen;
    for (std::uint64_t i = rng.below(51); i > 0; --i) chosen.insert(static_cast<std::uint32_t>(rng.below(50)));
    const std::vector<std::uint32_t> wanted(chosen.begin(), chosen.end());
    const auto reads = directory.reads(LayerId{1}, wanted, chunk);
    std::set<std::pair<std::uint32_t, std::uint32_t>> seen;
    std::uint64_t last = 0;
    for (const RecordRead& read : reads) {
      REQUIRE(kBlock * read.extent.blocks <= chunk);
      REQUIRE(read.extent.first >= last);
      last = read.extent.first;
      REQUIRE(read.extent.first >= directory.layer(LayerId{1}).first);
      REQUIRE(read.extent.end() <= directory.layer(LayerId{1}).end());
      for (const RecordPart& part : read.parts) {
        REQUIRE(seen.emplace(part.neuron, part.matrix).second);
        REQUIRE(chosen.contains(part.neuron));
        REQUIRE(kBlock * read.extent.first + part.offset == directory.address(LayerId{1}, part.neuron, part.matrix));
        REQUIRE(part.offset + sizes.row <= kBlock * read.extent.blocks);
      }
    }
    REQUIRE(seen.size() == 2 * wanted.size());
    // With one record per request and whole blocks, the bytes are those of the records.
    if (aligned && row == 512 && chunks == 0) {
      std::uint64_t bytes = 0;
      for (const RecordRead& read : reads) bytes += kBlock.value * read.extent.blocks;
      REQUIRE(bytes == 2 * row * wanted.size());
    }
  }
  CHECK_THROWS_AS(directory.reads(LayerId{0}, std::vector<std::uint32_t>{1}, directory.smallest_chunk() - kBlock),
                  InternalError);
}

TEST_CASE("all neurons of a layer are read in whole chunks", "[neurons]") {
  const RecordDirectory directory(format(RecordLayout::bundled, false, 256, 2));
  std::vector<std::uint32_t> all(50);
  for (std::uint32_t i = 0; i < 50; ++i) all[i] = i;
  const auto reads = directory.reads(LayerId{0}, all, kBlock * 10);
  REQUIRE(reads.size() == 5);
  for (std::size_t i = 0; i < 5; ++i) CHECK(reads[i].extent == Extent{7 + 10 * i, 10});
}

}  // namespace test_record_directory
