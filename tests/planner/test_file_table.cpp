// Files on the blocks of a drive, and the I/Os of operations on them.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/config/dump.h"
#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/planner/file_config.h"
#include "host_runtime/core/planner/file_table.h"

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;

namespace {

constexpr Bytes kBlock{4096};

Operation on(OpKind kind, std::string file, std::vector<FileRange> ranges) {
  Operation op;
  op.kind = kind;
  op.resource = Resource::file(DriveIndex{0});
  op.work = FileWork{.file = std::move(file), .ranges = std::move(ranges)};
  return op;
}
Operation read(std::string file, std::vector<FileRange> ranges) {
  return on(OpKind::read_file, std::move(file), std::move(ranges));
}

}  // namespace

TEST_CASE("a file operation is cut into I/Os of at most io_size that end at the ends of extents") {
  FileTable files(kBlock);
  files.add("a", {{100, 3}, {7, 5}});
  CHECK(files.size("a") == kBlock * 8);
  const std::vector<FileIo> ios = files.cut(read("a", {{{}, kBlock * 8}}), kBlock * 2);
  REQUIRE(ios.size() == 5);
  const std::vector<Extent> expected = {{100, 2}, {102, 1}, {7, 2}, {9, 2}, {11, 1}};
  for (std::size_t i = 0; i < ios.size(); ++i) CHECK(ios[i].extent == expected[i]);
  CHECK(ios[2].at == kBlock * 3);

  // Bytes 4,000 to 8,300: the ends of two blocks and the block between them.
  const std::vector<FileIo> odd = files.cut(read("a", {{Bytes{4000}, Bytes{4300}}}), kBlock * 32);
  REQUIRE(odd.size() == 1);
  CHECK(odd[0].extent == Extent{100, 3});
  CHECK(odd[0].skip == Bytes{4000});
  CHECK(odd[0].size == Bytes{4300});
}

TEST_CASE("the I/Os of random reads cover every wanted byte once, in place") {
  const std::uint64_t seed = Catch::rngSeed() + 5;
  INFO("seed " << seed);
  Rng rng(seed);
  for (int round = 0; round < 200; ++round) {
    FileTable files(kBlock);
    std::vector<Extent> extents;
    std::vector<std::uint64_t> block_of;  // of the file, on the drive
    std::uint64_t next = 0;
    for (std::uint64_t n = 1 + rng.below(5); n > 0; --n) {
      next += rng.below(3);
      extents.push_back({next, 1 + rng.below(20)});
      for (std::uint64_t b = 0; b < extents.back().blocks; ++b) block_of.push_back(next++);
    }
    files.add("f", extents);
    const std::uint64_t size = files.size("f").value;
    const std::uint64_t offset = rng.below(size), length = 1 + rng.below(size - offset);
    const Bytes io_size = kBlock * (1 + rng.below(8));
    std::uint64_t covered = 0;
    for (const FileIo& io : files.cut(read("f", {{Bytes{offset}, Bytes{length}}}), io_size)) {
      REQUIRE(io.at.value == covered);
      covered += io.size.value;
      REQUIRE(kBlock * io.extent.blocks <= io_size);
      REQUIRE(io.skip + io.size <= kBlock * io.extent.blocks);
      REQUIRE(io.skip < kBlock);
      const std::uint64_t byte = offset + io.at.value;
      for (std::uint64_t b = 0; b < io.extent.blocks; ++b)
        REQUIRE(block_of.at(byte / kBlock.value + b) == io.extent.first + b);
      REQUIRE(io.skip.value == byte % kBlock.value);
    }
    REQUIRE(covered == length);
  }
}

TEST_CASE("mistakes with files name them") {
  FileTable files(kBlock);
  files.add("weights", {{0, 4}});
  CHECK_THROWS_WITH(files.add("weights", {{9, 1}}), Contains("weights"));
  CHECK_THROWS_WITH(files.add("other", {{3, 2}}), Contains("other") && Contains("weights"));
  CHECK_THROWS_WITH(files.add("other", {{8, 2}, {9, 1}}), Contains("itself"));
  CHECK_THROWS_AS(files.add("other", {{8, 0}}), UserError);
  CHECK_THROWS_WITH(files.size("wieghts"), Contains("wieghts") && Contains("there is weights"));
  CHECK_THROWS_AS(files.cut(read("weights", {{Bytes{}, Bytes{}}}), kBlock), InternalError);
  CHECK_THROWS_AS(files.cut(read("weights", {{Bytes{1}, kBlock * 4}}), kBlock), InternalError);
  CHECK_THROWS_AS(files.cut(read("weights", {{kBlock * 5, Bytes{1}}}), kBlock), InternalError);
  CHECK_THROWS_AS(files.cut(read("weights", {{Bytes{}, kBlock}}), Bytes{1000}), UserError);
  CHECK_THROWS_AS(files.cut(on(OpKind::write_file, "weights", {{Bytes{}, Bytes{100}}}), kBlock), InternalError);
  CHECK(files.cut(on(OpKind::write_file, "weights", {{kBlock, kBlock * 2}}), kBlock).size() == 2);
}

TEST_CASE("the parameters of a file path are described, direct I/O among them") {
  FileIoConfig config;
  CHECK(config::JsonDump::of(config) ==
        nlohmann::ordered_json::parse(
            R"({"io_size": "128 KiB", "io_overhead": "8 us", "threads": 1, "copy_bandwidth": "0 B/s"})"));
  config.threads = 4;
  CHECK(config::JsonDump::of(config)["threads"] == 4);
}
