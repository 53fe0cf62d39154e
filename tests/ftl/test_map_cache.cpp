// The cached map: which entries are there, what misses and dirty entries cost.
#include <catch2/catch.hpp>
#include <cstring>
#include <list>
#include <map>

#include "base/error.h"
#include "base/rng.h"
#include "block_drive.h"
#include "faulty_media.h"
#include "ftl/block/map_cache.h"

namespace test_map_cache {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using csdsim::ftl::test::FaultyMedia;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage{512};  // a translation page holds 128 entries

std::size_t ops(const IoPlan& plan, std::size_t phase, OpClass op_class, PageOpKind kind) {
  if (phase >= plan.phases.size()) return 0;
  return static_cast<std::size_t>(std::ranges::count_if(
      plan.phases[phase], [&](const PageOp& op) { return op.op_class == op_class && op.kind == kind; }));
}

}  // namespace

TEST_CASE("the map cache against a list: least recently used goes, writing a page cleans all of its entries") {
  for (const std::uint64_t capacity : {1u, 2u, 7u, 64u}) {
    MapCache cache(capacity, 8, 100);
    std::list<std::uint64_t> used;  // newest first
    std::map<std::uint64_t, bool> dirty;
    Rng rng(capacity);
    for (int step = 0; step < 20'000; ++step) {
      const std::uint64_t entry = rng.below(100);
      const bool there = dirty.contains(entry);
      REQUIRE(cache.touch(entry) == there);
      if (there) {
        used.remove(entry);
      } else {
        std::optional<std::uint64_t> expected;
        if (used.size() == capacity) {
          if (dirty.at(used.back())) {
            expected = used.back() / 8;
            for (auto& [e, d] : dirty) d = d && e / 8 != *expected;
          }
          dirty.erase(used.back());
          used.pop_back();
        }
        REQUIRE(cache.add(entry) == expected);
        dirty[entry] = false;
      }
      used.push_front(entry);
      const std::uint64_t changed = rng.below(100);
      REQUIRE(cache.mark_dirty(changed) == dirty.contains(changed));
      if (dirty.contains(changed)) dirty[changed] = true;
      if (rng.below(50) == 0) {
        cache.clean(changed / 8);
        for (auto& [e, d] : dirty) d = d && e / 8 != changed / 8;
      }
      REQUIRE(cache.size() == used.size());
      REQUIRE(cache.dirty_entries() ==
              static_cast<std::uint64_t>(std::ranges::count_if(dirty, [](const auto& e) { return e.second; })));
    }
  }
}

TEST_CASE(
    "a miss reads its translation page before the data, a hit does not, and dirty entries are written in batches") {
  Drive drive({2, 1, 1, 32, 16, kPage}, {32, 0}, DataMode::timing, {.map_cache_entries = 2});
  drive.ftl.precondition(kPage * 512, std::nullopt);
  const auto read = [&](std::uint64_t page) { return drive.ftl.read(kPage * page, kPage); };
  IoPlan plan = read(0);
  REQUIRE(plan.phases.size() == 2);
  CHECK(ops(plan, 0, OpClass::map, PageOpKind::read) == 1);
  CHECK(ops(plan, 1, OpClass::host, PageOpKind::read) == 1);
  CHECK(read(0).phases.size() == 1);
  CHECK(drive.ftl.stats().map_hits == 1);
  CHECK(drive.ftl.stats().map_misses == 1);
  // Two dirty entries of one translation page: the first to go takes the other along.
  drive.ftl.write(kPage * 0, kPage);
  drive.ftl.write(kPage * 1, kPage);
  const std::uint64_t written = drive.ftl.stats().map_pages_written;
  plan = read(200);
  REQUIRE(plan.phases.size() == 3);
  CHECK(ops(plan, 0, OpClass::map, PageOpKind::read) == 2);  // for the page that is written, and for the one wanted
  CHECK(ops(plan, 1, OpClass::map, PageOpKind::program) == 1);
  CHECK(ops(plan, 2, OpClass::host, PageOpKind::read) == 1);
  CHECK(read(300).phases.size() == 2);
  CHECK(drive.ftl.stats().map_pages_written == written + 1);
  // The same in two steps.
  CHECK(ops(drive.ftl.find(kPage * 400, kPage), 0, OpClass::map, PageOpKind::read) == 1);
  CHECK(drive.ftl.find(kPage * 400, kPage).phases.empty());
  Phase phase;
  CHECK(drive.ftl.read(kPage * 400, kPage, {}, phase) == IoStatus::ok);
  CHECK(phase.size() == 1);
  BlockManager blocks({2, 1, 1, 32, 16, kPage}, {32, 0});
  CHECK_THROWS_AS(BlockFtl({.map_cache_entries = 0}, blocks, drive.store), UserError);
}

TEST_CASE("the hit rate of uniformly random reads is the share of entries that are cached") {
  for (const std::uint64_t entries : {100u, 1000u, 1900u}) {
    Drive drive({2, 1, 1, 128, 16, kPage}, {128, 0}, DataMode::timing, {.map_cache_entries = entries});
    drive.ftl.precondition(kPage * 2000, 1);
    Rng rng(1);
    for (int i = 0; i < 60'000; ++i) drive.ftl.read(kPage * rng.below(2000), kPage);
    const BlockFtlStats& s = drive.ftl.stats();
    CHECK(s.map_hits + s.map_misses == 60'000);
    const double rate = static_cast<double>(s.map_hits) / 60'000;
    // The first `entries` misses are those of the empty cache.
    const double expected = static_cast<double>(entries) / 2000;
    CHECK(rate == Approx(expected).margin(0.05));
    CHECK(s.map_pages_written == 0);
    CHECK(s.map_pages_read == s.map_misses);
  }
}

TEST_CASE("a cached map costs writes, the more the smaller it is; one that holds every entry costs none") {
  const auto measure = [](std::optional<std::uint64_t> entries) {
    Drive drive({2, 1, 1, 128, 16, kPage}, {128, 0}, DataMode::timing,
                {.over_provisioning = 0.25, .map_cache_entries = entries});
    const std::uint64_t pages = 2800;
    drive.ftl.precondition(kPage * pages, 1);
    for (std::uint64_t p = 0; p < pages; ++p) drive.ftl.read(kPage * p, kPage);
    drive.ftl.age(3, 1);
    CHECK(drive.ftl.stats().map_pages_written == 0);
    const BlockFtlStats before = drive.ftl.stats();
    Rng rng(1);
    for (std::uint64_t i = 0; i < 4 * pages; ++i) drive.ftl.write(kPage * rng.below(pages), kPage);
    BlockFtlStats s = drive.ftl.stats();
    s.map_misses -= before.map_misses;
    return s;
  };
  const BlockFtlStats ideal = measure(std::nullopt);
  const BlockFtlStats all = measure(1 << 20);
  const BlockFtlStats half = measure(1400);
  const BlockFtlStats few = measure(64);
  CHECK(ideal.map_hits + ideal.map_misses == 0);
  CHECK(all.map_misses == 0);
  CHECK(all.map_pages_written == 0);
  CHECK(all.write_amplification() == Approx(ideal.write_amplification()).epsilon(0.10));
  CHECK(half.map_pages_written > 0);
  CHECK(few.map_pages_written > half.map_pages_written);
  CHECK(few.write_amplification() > half.write_amplification());
}

TEST_CASE("a drive with a cached map against a map of bytes, with failing programs, in both allocations") {
  for (std::uint64_t seed = 1; seed <= 6; ++seed) {
    CAPTURE(seed);
    FaultyMedia media(seed);
    media.program = 2e-4;
    media.erase = 1e-3;
    const FlashGeometry g{2, 1, 2, 64, 16, kPage};
    const BlockFtlConfig config{.over_provisioning = seed % 2 == 0 ? 0.0 : 0.15,
                                .gc_free_blocks = 1 + static_cast<std::uint32_t>(seed % 3),
                                .check = PageCheck::key_and_crc,
                                .allocation = seed % 3 == 0 ? PageAllocation::fixed : PageAllocation::dynamic,
                                .background_free_blocks = seed % 2 == 0 ? 6u : 0u,
                                .wear_spread = seed % 3 == 1 ? 6u : 0u,
                                .map_cache_entries = std::array<std::uint64_t, 3>{1, 40, 700}[seed % 3]};
    Drive drive(g, {54, 0}, DataMode::carried, config, {.spare_blocks = 10}, &media);
    const std::uint64_t pages = drive.pages();
    std::vector<std::uint64_t> oracle(pages, 0);
    std::vector<std::byte> data(kPage.value);
    const auto image = [&](std::uint64_t key) {
      std::ranges::fill(data, std::byte{0});
      if (key > 0) std::memcpy(data.data(), &key, sizeof key);
    };
    Rng rng(seed);
    std::uint64_t key = 0;
    bool read_only = false;
    for (int step = 0; step < 30'000 && !read_only; ++step) {
      const std::uint64_t page = rng.below(pages);
      IoPlan plan;
      if (rng.below(8) == 0) {
        plan = drive.ftl.trim(kPage * page, kPage);
        if (plan.status == IoStatus::ok) oracle[page] = 0;
      } else if (rng.below(3) == 0) {
        plan = drive.ftl.read(kPage * page, kPage, data);
        const std::vector<std::byte> found = data;
        image(oracle[page]);
        REQUIRE(found == data);
      } else {
        image(++key);
        plan = drive.ftl.write(kPage * page, kPage, data);
        if (plan.status == IoStatus::ok) oracle[page] = key;
      }
      REQUIRE_NOTHROW(drive.run(plan));
      read_only = plan.status == IoStatus::read_only;
      if (!read_only) REQUIRE(plan.status == IoStatus::ok);
      if (const auto more = drive.ftl.background_step(PlaneId{static_cast<std::uint32_t>(rng.below(4))})) {
        REQUIRE_NOTHROW(drive.run(*more));
      }
      if (step % 3000 == 0) check_mapping(drive, (pages + 127) / 128);
    }
    check_mapping(drive, (pages + 127) / 128);
    CHECK(drive.ftl.stats().gc_erases > 100);
    CHECK(drive.ftl.stats().map_pages_written > 20);
    CHECK(drive.store.integrity_errors() == 0);
    for (std::uint64_t p = 0; p < pages; ++p) {
      drive.ftl.read(kPage * p, kPage, data);
      const std::vector<std::byte> found = data;
      image(oracle[p]);
      REQUIRE(found == data);
    }
  }
}

TEST_CASE("translation pages and pages of the host share no block, also where wear is levelled") {
  const FlashGeometry g{1, 1, 1, 24, 12, Bytes{16}};
  Drive drive(g, {24, 0}, DataMode::timing, {.over_provisioning = 0.6, .wear_spread = 2, .map_cache_entries = 5});
  const std::uint64_t pages = drive.pages(), translation_pages = (pages + 3) / 4;
  Rng rng(5);
  // After every page was written once, most writes go to a few pages: the others are cold, and so are their translation
  // pages.
  for (std::uint64_t i = 0; i < 20'000; ++i) {
    const std::uint64_t page = i < pages ? i : rng.below(rng.below(500) == 0 ? pages : 8);
    REQUIRE(drive.ftl.write(Bytes{16} * page, Bytes{16}).status == IoStatus::ok);
  }
  REQUIRE(drive.ftl.stats().wear_erases > 20);
  check_mapping(drive, translation_pages);
  std::map<std::uint32_t, std::set<bool>> kinds;
  for (std::uint64_t page = 0; page < pages + translation_pages; ++page)
    if (const PhysicalPageAddress ppa = drive.ftl.lookup(LogicalPage{page}); ppa.valid())
      kinds[g.block_of(ppa).value].insert(page < pages);
  for (const auto& [block, in_block] : kinds) CHECK(in_block.size() == 1);
}

}  // namespace test_map_cache
