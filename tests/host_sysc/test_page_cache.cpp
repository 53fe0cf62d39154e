// Files through the page cache: data, closed forms of hits, misses and write-back, and what leaves the cache.
#include <catch2/catch.hpp>

#include "tests/host_sysc/file_rig.h"

namespace test_page_cache {

using namespace csdsim;
using namespace csdsim::test;
using host::FileRange;
using host::OpKind;

namespace {

constexpr Bytes kChunk = Bytes::kib(16);
constexpr std::uint64_t kChunks = 20;  // chunks of the file: 16 in the first extent, 4 in the second
constexpr Bytes kFile = kChunk * kChunks;
constexpr Bandwidth kCopy{2'000'000'000};

host::FileIoParams cached(std::uint64_t chunks, std::uint32_t threads = 1) {
  return {.access = host::FileAccess::cached,
          .io_size = kChunk,
          .io_overhead = SimTime::microseconds(7),
          .threads = threads,
          .copy_bandwidth = kCopy,
          .page_cache = kChunk * chunks,
          .dirty_limit = kFile * 4};
}

host::Extent extent_of(std::uint64_t chunk) {
  return chunk < 16 ? host::Extent{kFirstBlock + 4 * chunk, 4} : host::Extent{8 + 4 * (chunk - 16), 4};
}

FileRange chunk_at(std::uint64_t chunk) { return {kChunk * chunk, kChunk}; }

std::vector<std::byte> random_bytes(Rng& rng, std::uint64_t size) {
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = std::byte(rng.below(256));
  return bytes;
}

SimTime run(FileRig& rig, OpKind kind, std::vector<FileRange> ranges) {
  return FileRig::time(rig.rig.run({rig.operation(kind, std::move(ranges))}), kind);
}

/// The chunk as the drive holds it, past the page cache.
std::vector<std::byte> on_drive(FileRig& rig, std::uint64_t chunk) {
  rig.rig.run({{OpKind::read_blocks, kBlocks, host::BlockWork{.extents = {extent_of(chunk)}}}});
  return rig.rig.data.blocks[0];
}

/// Fills the blocks of the file past the page cache.
void fill_drive(FileRig& rig) {
  for (std::uint64_t c = 0; c < kChunks; ++c) {
    rig.rig.data.blocks = {std::vector<std::byte>(kChunk.value, std::byte(c))};
    rig.rig.run({{OpKind::write_blocks, kBlocks, host::BlockWork{.extents = {extent_of(c)}}}});
  }
}

FileRange random_range(Rng& rng) {
  const std::uint64_t offset = rng.below(kFile.value);
  return {Bytes{offset}, Bytes{1 + rng.below(std::min<std::uint64_t>(kFile.value - offset, 5 * kChunk.value))}};
}

}  // namespace

TEST_CASE("cached: what was written is read back, whatever fits into the cache") {
  const std::uint64_t seed = Catch::rngSeed() + GENERATE(range(0, 12));
  INFO("seed " << seed);
  Rng rng(seed);
  host::FileIoParams params = cached(std::vector<std::uint64_t>{0, 1, 3, 19, 20, 30}[rng.below(6)],
                                     static_cast<std::uint32_t>(1 + rng.below(5)));
  params.dirty_limit = kChunk * rng.below(6);
  params.write_back_on_eviction = rng.below(2) == 1;
  CAPTURE(params.page_cache.value, params.threads, params.dirty_limit.value, params.write_back_on_eviction);
  FileRig rig(params);
  std::vector<std::byte> content(kFile.value);
  const auto write = [&](FileRange range) {
    rig.data.ranges = {random_bytes(rng, range.size.value)};
    std::ranges::copy(rig.data.ranges[0], content.begin() + static_cast<std::ptrdiff_t>(range.offset.value));
    run(rig, OpKind::write_file, {range});
  };
  const auto read = [&](FileRange range) {
    run(rig, OpKind::read_file, {range});
    CHECK(std::ranges::equal(rig.data.ranges[0], std::span(content).subspan(range.offset.value, range.size.value)));
  };
  for (std::uint64_t at = 0; at < kFile.value;) {  // it grows by odd amounts
    const std::uint64_t size = std::min(kFile.value - at, 1 + rng.below(3 * kChunk.value));
    write({Bytes{at}, Bytes{size}});
    at += size;
  }
  for (int i = 0; i < 25; ++i) rng.below(2) == 1 ? write(random_range(rng)) : read(random_range(rng));
  read({{}, kFile});
  rig.settle();
  read({{}, kFile});
  if (params.write_back_on_eviction) return;
  for (std::uint64_t c = 0; c < kChunks; ++c)
    CHECK(std::ranges::equal(on_drive(rig, c), std::span(content).subspan((kChunk * c).value, kChunk.value)));
}

TEST_CASE("cached, one thread: a hit takes its copy, a miss the overhead, the drive and the copy") {
  FileRig rig(cached(kChunks));
  fill_drive(rig);
  const SimTime copy = transfer_time(kChunk, kCopy);
  SimTime misses;
  for (std::uint64_t c = 0; c < kChunks; ++c) misses += SimTime::microseconds(7) + rig.drive_time(extent_of(c)) + copy;
  CHECK(run(rig, OpKind::read_file, {{{}, kFile}}).ps == misses.ps);
  CHECK(rig.files.totals().cache_hits == 0);
  CHECK(run(rig, OpKind::read_file, {{{}, kFile}}).ps == (copy * kChunks).ps);
  CHECK(rig.files.totals().cache_hits == kChunks);
  CHECK(rig.files.totals().transferred == kFile);
  // Parts of chunks copy their bytes only.
  CHECK(run(rig, OpKind::read_file, {{Bytes{100}, Bytes{1000}}}).ps == transfer_time(Bytes{1000}, kCopy).ps);
}

TEST_CASE("cached: a cyclic scan of one chunk more than fits misses every time, one that fits never again") {
  for (const std::uint64_t fits : {kChunks - 1, kChunks}) {
    FileRig rig(cached(fits));
    fill_drive(rig);
    for (int scan = 0; scan < 3; ++scan) run(rig, OpKind::read_file, {{{}, kFile}});
    CAPTURE(fits);
    CHECK(rig.files.totals().cache_hits == (fits < kChunks ? 0 : 2 * kChunks));
    CHECK(rig.files.totals().transferred == kFile * (fits < kChunks ? 3 : 1));
  }
}

TEST_CASE("cached: the least recently used chunk leaves, not the oldest one") {
  FileRig rig(cached(2));
  fill_drive(rig);
  for (const std::uint64_t c : {0, 1, 0, 2, 0}) run(rig, OpKind::read_file, {chunk_at(c)});
  CHECK(rig.files.totals().cache_hits == 2);  // chunk 0 twice
  run(rig, OpKind::read_file, {chunk_at(1)});
  CHECK(rig.files.totals().cache_hits == 2);
}

TEST_CASE("cached: writes take their copies, and each changed chunk is written once in the background") {
  FileRig rig(cached(kChunks));
  rig.data.ranges = {std::vector<std::byte>(kFile.value, std::byte{7})};
  CHECK(run(rig, OpKind::write_file, {{{}, kFile}}).ps == (transfer_time(kChunk, kCopy) * kChunks).ps);
  rig.settle();
  CHECK(rig.files.totals().written_back == kFile);
  CHECK(rig.files.totals().transferred == kFile);  // whole chunks need no reads
  run(rig, OpKind::read_file, {{{}, kFile}});
  rig.settle();
  CHECK(rig.files.totals().written_back == kFile);  // reading changes nothing
}

TEST_CASE("cached: appending behind what was written reads nothing from the drive") {
  FileRig rig(cached(kChunks));
  for (std::uint64_t at = 0; at < kFile.value; at += kChunk.value / 4) {
    rig.data.ranges = {std::vector<std::byte>(kChunk.value / 4)};
    run(rig, OpKind::write_file, {{Bytes{at}, Bytes{kChunk.value / 4}}});
  }
  rig.settle();
  CHECK(rig.files.totals().transferred == rig.files.totals().written_back);
}

TEST_CASE("cached: chunks that nobody has written are not read, wherever others were written") {
  FileRig rig(cached(kChunks, 4));
  std::vector<FileRange> ranges;  // a part of every other chunk, the last one first
  for (std::uint64_t c = kChunks; c-- > 0;)
    if (c % 2 == 0) ranges.push_back({kChunk * c, Bytes{100}});
  rig.data.ranges.assign(ranges.size(), std::vector<std::byte>(100, std::byte{3}));
  run(rig, OpKind::write_file, ranges);
  rig.settle();
  CHECK(rig.files.totals().written_back == kChunk * ranges.size());
  CHECK(rig.files.totals().transferred == rig.files.totals().written_back);
}

TEST_CASE("cached: a part of a chunk that was written and has left is read before it changes") {
  FileRig rig(cached(1));
  rig.data.ranges = {std::vector<std::byte>(kFile.value, std::byte{7})};
  run(rig, OpKind::write_file, {{{}, kFile}});
  rig.settle();
  const host::FileTotals before = rig.files.totals();
  rig.data.ranges = {std::vector<std::byte>(10, std::byte{9})};
  const SimTime read = rig.drive_time(extent_of(0));
  CHECK(run(rig, OpKind::write_file, {{Bytes{5}, Bytes{10}}}).ps ==
        (SimTime::microseconds(7) + read + transfer_time(Bytes{10}, kCopy)).ps);
  rig.settle();
  CHECK(rig.files.totals().transferred - before.transferred == kChunk * 2);
  const std::vector<std::byte> now = on_drive(rig, 0);
  CHECK(now[4] == std::byte{7});
  CHECK(now[5] == std::byte{9});
  CHECK(now[15] == std::byte{7});
}

TEST_CASE("cached: beyond the dirty limit a writer goes at the pace of the drive") {
  host::FileIoParams params = cached(kChunks);
  const SimTime copies = transfer_time(kChunk, kCopy) * kChunks;
  const auto write_all = [&](Bytes limit) {
    params.dirty_limit = limit;
    FileRig rig(params);
    rig.data.ranges = {std::vector<std::byte>(kFile.value, std::byte{7})};
    const SimTime took = run(rig, OpKind::write_file, {{{}, kFile}});
    rig.settle();
    SimTime at_drive;
    for (std::uint64_t c = 0; c < kChunks; ++c) at_drive += rig.drive_time(extent_of(c), OpKind::write_blocks);
    return std::pair(took, at_drive);
  };
  const auto [took, at_drive] = write_all({});
  CHECK(took.ps == (at_drive + copies).ps);
  CHECK(write_all(kFile).first.ps == copies.ps);  // nobody waits
  const SimTime between = write_all(kChunk * 10).first;
  CHECK(between > copies);
  CHECK(between < took);
}

namespace {

constexpr std::uint64_t kBlocksOfFile = 80;  // 64 in the first extent, 16 in the second
constexpr Bytes kBlock = Bytes::kib(4);

/// A cache of blocks. All that is written changes at once: as many writes start as may be in flight, the others wait.
host::FileIoParams blocks_at_once(Bytes write_back_size) {
  host::FileIoParams params = cached(kChunks);
  params.io_size = kBlock;
  params.copy_bandwidth = {};
  params.write_back_size = write_back_size;
  return params;
}

}  // namespace

TEST_CASE("cached: chunks that wait are written with those behind them, up to the size of a write-back") {
  const auto commands = [](Bytes write_back_size, const std::vector<FileRange>& ranges) {
    FileRig rig(blocks_at_once(write_back_size));
    const std::uint64_t before = rig.rig.platform.driver(0).issued();
    rig.data.ranges.clear();
    for (const FileRange& range : ranges) rig.data.ranges.push_back(std::vector<std::byte>(range.size.value));
    run(rig, OpKind::write_file, ranges);
    rig.settle();
    CHECK(rig.files.totals().written_back == kFile);
    return rig.rig.platform.driver(0).issued() - before;
  };
  const std::vector<FileRange> all{{{}, kFile}};
  constexpr std::uint64_t kFirst = host::FileBackend::kWriteBackDepth, kWait = kBlocksOfFile - kFirst;
  static_assert(kFirst < 64 && kWait % 16 == 0);
  CHECK(commands({}, all) == kBlocksOfFile);
  CHECK(commands(kBlock * 2 - Bytes{1}, all) == kBlocksOfFile);
  CHECK(commands(kBlock * 2, all) == kFirst + kWait / 2);
  CHECK(commands(kBlock * 16, all) == kFirst + kWait / 16);
  CHECK(commands(Bytes::mib(1), all) == kFirst + 2);  // a write ends with the extent
  std::vector<FileRange> backwards;                   // the last block first: nothing that is behind a block waits
  for (std::uint64_t at = kBlocksOfFile; at-- > 0;) backwards.push_back({kBlock * at, kBlock});
  CHECK(commands(Bytes::mib(1), backwards) == kBlocksOfFile);
}

TEST_CASE("cached: what is written together arrives, though it changes and leaves meanwhile") {
  const std::uint64_t seed = Catch::rngSeed() + GENERATE(range(0, 12));
  INFO("seed " << seed);
  Rng rng(seed);
  host::FileIoParams params = blocks_at_once(kBlock * (1 + rng.below(20)));
  params.page_cache = kBlock * rng.below(100);
  params.dirty_limit = kBlock * rng.below(100);
  params.threads = static_cast<std::uint32_t>(1 + rng.below(40));
  CAPTURE(params.write_back_size.value, params.page_cache.value, params.dirty_limit.value, params.threads);
  FileRig rig(params);
  std::vector<std::byte> content(kFile.value);
  for (int round = 0; round < 6; ++round) {
    std::vector<FileRange> ranges;  // that do not overlap, so that their order does not matter
    rig.data.ranges.clear();
    for (std::uint64_t at = rng.below(2 * kBlock.value); at < kFile.value; at += rng.below(2 * kBlock.value)) {
      const std::uint64_t size = std::min(kFile.value - at, 1 + rng.below(12 * kBlock.value));
      ranges.push_back({Bytes{at}, Bytes{size}});
      rig.data.ranges.push_back(random_bytes(rng, size));
      std::ranges::copy(rig.data.ranges.back(), content.begin() + static_cast<std::ptrdiff_t>(at));
      at += size;
    }
    run(rig, OpKind::write_file, ranges);  // the next round begins while some of it waits
  }
  rig.settle();
  for (std::uint64_t c = 0; c < kChunks; ++c)
    CHECK(std::ranges::equal(on_drive(rig, c), std::span(content).subspan((kChunk * c).value, kChunk.value)));
  run(rig, OpKind::read_file, {{{}, kFile}});
  CHECK(std::ranges::equal(rig.data.ranges[0], content));
}

TEST_CASE("cached, written on eviction: only what leaves is written") {
  host::FileIoParams params = cached(kChunks);
  params.write_back_on_eviction = true;
  const auto written = [&](std::uint64_t fits) {
    params.page_cache = kChunk * fits;
    FileRig rig(params);
    rig.data.ranges = {std::vector<std::byte>(kFile.value, std::byte{7})};
    run(rig, OpKind::write_file, {{{}, kFile}});
    rig.settle();
    for (std::uint64_t c = 0; c < kChunks; ++c) {
      // Those that were used first have left.
      INFO(fits << " fit, chunk " << c);
      CHECK((on_drive(rig, c)[0] == std::byte{7}) == (c + fits < kChunks));
    }
    return rig.files.totals().written_back;
  };
  CHECK(written(kChunks) == Bytes{});
  CHECK(written(12) == kChunk * 8);
  CHECK(written(1) == kChunk * 19);
}

TEST_CASE("materialise() leaves what real reads or writes leave in the cache") {
  const std::uint64_t seed = Catch::rngSeed() + 77;
  INFO("seed " << seed);
  for (const std::uint64_t fits : {1U, 7U, 20U, 25U})
    for (const OpKind kind : {OpKind::read_file, OpKind::write_file}) {
      CAPTURE(fits, int(kind));
      // Hits of random reads after some ranges of whole chunks have been used, really or not.
      const auto hits = [&](bool really) {
        Rng rng(seed);
        FileRig rig(cached(fits), false);
        for (int i = 0; i < 10; ++i) {
          const std::uint64_t first = rng.below(kChunks), count = 1 + rng.below(kChunks - first);
          const FileRange range{kChunk * first, kChunk * count};
          if (really) {
            run(rig, kind, {range});
            rig.settle();
          } else {
            rig.files.materialise(0, kName, range);
          }
        }
        std::vector<std::uint64_t> counts;
        const std::uint64_t before = rig.files.totals().cache_hits;
        for (int i = 0; i < 20; ++i) {
          run(rig, OpKind::read_file, {random_range(rng)});
          counts.push_back(rig.files.totals().cache_hits - before);
        }
        return counts;
      };
      CHECK(hits(true) == hits(false));
    }
}

TEST_CASE("cached: the smallest caches and dirty limits do not stop") {
  const std::uint64_t seed = Catch::rngSeed() + 5;
  INFO("seed " << seed);
  for (const bool on_eviction : {false, true})
    for (const std::uint64_t capacity : {std::uint64_t{0}, std::uint64_t{1}, kChunk.value, 3 * kChunk.value})
      for (const std::uint64_t limit : {std::uint64_t{0}, std::uint64_t{1}, kChunk.value})
        for (const std::uint32_t threads : {1U, 3U, 16U}) {
          CAPTURE(on_eviction, capacity, limit, threads);
          Rng rng(seed);
          host::FileIoParams params = cached(0, threads);
          params.page_cache = Bytes{capacity};
          params.dirty_limit = Bytes{limit};
          params.write_back_on_eviction = on_eviction;
          FileRig rig(params, false);
          CHECK_NOTHROW(run(rig, OpKind::write_file, {{{}, kFile}}));
          for (int i = 0; i < 8; ++i)
            CHECK_NOTHROW(run(rig, rng.below(2) == 1 ? OpKind::write_file : OpKind::read_file,
                              {random_range(rng), random_range(rng), random_range(rng)}));
          CHECK_NOTHROW(rig.settle());
        }
}

TEST_CASE(
    "cached: threads that wait for the same chunk get it, though there is no room for it and copies take no time") {
  host::FileIoParams swap = cached(0, 3);
  swap.copy_bandwidth = {};
  swap.write_back_on_eviction = true;
  FileRig rig(swap);
  fill_drive(rig);
  const Bytes quarter{kChunk.value / 4};
  std::vector<FileRange> ranges;
  for (std::uint64_t i = 0; i < 12; ++i)
    ranges.push_back({quarter * i, quarter});  // four ranges for each of three chunks
  run(rig, OpKind::read_file, ranges);
  REQUIRE(rig.data.ranges.size() == ranges.size());
  for (std::uint64_t i = 0; i < ranges.size(); ++i)
    CHECK(rig.data.ranges[i] == std::vector<std::byte>(quarter.value, std::byte(i / 4)));
}

}  // namespace test_page_cache
