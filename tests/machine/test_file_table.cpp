// Files on the blocks of a drive, and the I/Os of operations on them.
#include <catch2/catch.hpp>

#include <algorithm>

#include "base/config/dump.h"
#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/machine/file_config.h"
#include "host_runtime/core/machine/file_table.h"

namespace test_file_table {

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
    std::vector<std::uint64_t> block_of;  // blocks of the file, on the drive
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

TEST_CASE("chunks are aligned in the file, end with extents, and take writes of any bytes") {
  FileTable files(kBlock);
  files.add("a", {{100, 6}, {7, 5}});
  // Bytes of blocks 1 to 6: chunks of 4 blocks begin at blocks 0 and 4, and at 6, where the second extent begins.
  const Operation write = on(OpKind::write_file, "a", {{Bytes{5000}, kBlock * 5}});
  const std::vector<FileIo> ios = files.cut(write, kBlock * 4, FileCut::chunks);
  REQUIRE(ios.size() == 3);
  const std::vector<Extent> expected = {{100, 4}, {104, 2}, {7, 2}};
  for (std::size_t i = 0; i < ios.size(); ++i) CHECK(ios[i].extent == expected[i]);
  CHECK(ios[0].skip == Bytes{5000});
  CHECK(ios[0].size == kBlock * 4 - Bytes{5000});
  CHECK(ios[1].skip == Bytes{});
  CHECK(ios[2].size == Bytes{5000} - kBlock);
  CHECK_THROWS_AS(files.cut(write, kBlock * 4, FileCut::blocks), InternalError);
}

TEST_CASE("a file path has a page cache only if it is cached, and copies unless it is direct") {
  FileConfig config;
  CHECK(config::JsonDump::of(config) == nlohmann::ordered_json::parse(R"({"access": "cached", "io_size": "128 KiB",
      "io_overhead": "8 us", "threads": 4, "copy_bandwidth": "2 GB/s", "page_cache": "auto", "dirty_ratio": "0.2",
      "write_back_size": "1 MiB"})"));
  FileIoParams params = config.params(Bytes::mib(100));
  CHECK(params.page_cache == Bytes::mib(100));
  CHECK(params.dirty_limit == Bytes::mib(20));
  CHECK(params.write_back_size == Bytes::mib(1));
  config.page_cache = Bytes::mib(10);
  CHECK(config.params(Bytes::mib(100)).page_cache == Bytes::mib(10));
  config.access = FileAccess::bounce;
  CHECK(config.params(Bytes::mib(100)).page_cache == Bytes{});
  CHECK(config.params({}).copy_bandwidth.bytes_per_second == 2'000'000'000);
  config.access = FileAccess::direct;
  CHECK(config.params({}).copy_bandwidth.bytes_per_second == 0);

  CHECK(config::JsonDump::of(SwapConfig{}) ==
        nlohmann::ordered_json::parse(R"({"io_size": "32 KiB", "io_overhead": "8 us", "threads": 1})"));
  params = SwapConfig{}.params(Bytes::mib(100));
  CHECK(params.page_cache == Bytes::mib(100));
  CHECK(params.write_back_on_eviction);
  CHECK(params.write_back_size == Bytes{});
}

}  // namespace test_file_table
