#include <catch2/catch.hpp>
#include <cstring>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "block_drive.h"
#include "ftl/block/block_ftl.h"

namespace test_block_ftl {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using Drive = csdsim::ftl::test::BlockDrive;

TEST_CASE("block FTL against a map of bytes: random writes, reads and trims under garbage collection") {
  struct Case {
    FlashGeometry geometry;
    std::uint32_t quota;
    BlockFtlConfig config;
  };
  const StripeOrder plane_first{StripeLevel::plane, StripeLevel::die, StripeLevel::channel};
  const std::vector<Case> cases{
      {{2, 2, 2, 12, 8, Bytes{512}}, 12, {0.07, 2, kChannelDiePlane, PageCheck::key_and_crc}},
      {{1, 1, 1, 8, 16, Bytes{512}}, 8, {0.0, 1, kChannelDiePlane, PageCheck::key_and_crc}},
      {{3, 1, 2, 16, 4, Bytes{1024}}, 10, {0.3, 3, plane_first, PageCheck::key_and_crc}},
      {{1, 2, 1, 7, 2, Bytes{512}}, 7, {0.0, 1, plane_first, PageCheck::key_and_crc}},
  };
  for (const Case& c : cases) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(c.geometry.channels, c.geometry.pages_per_block, seed);
      Drive drive(c.geometry, {c.quota, 0}, DataMode::carried, c.config);
      std::mt19937_64 rng(seed);
      const std::uint64_t capacity = drive.ftl.capacity().value;
      const std::uint64_t page = c.geometry.page_size.value;
      std::vector<std::byte> oracle(capacity, std::byte{0});
      std::vector<bool> mapped(capacity / page, false);
      std::uint64_t host_programs = 0;
      const auto extent = [&] {
        // Mostly pages, often sectors; sometimes larger than what a plane has left.
        const std::uint64_t unit = rng() % 2 == 0 ? page : 128;
        const std::uint64_t offset = rng() % (capacity / unit) * unit;
        const std::uint64_t most = std::min<std::uint64_t>(capacity - offset, rng() % 16 == 0 ? capacity : 6 * page);
        return std::pair{Bytes{offset}, Bytes{(rng() % (most / unit) + 1) * unit}};
      };
      for (int step = 0; step < 1500; ++step) {
        const auto [offset, length] = extent();
        const std::uint64_t action = rng() % 10;
        if (action < 6) {
          std::vector<std::byte> data(length.value);
          for (std::byte& b : data) b = static_cast<std::byte>(rng());
          const IoPlan plan = drive.ftl.write(offset, length, data);
          REQUIRE(plan.status == IoStatus::ok);
          REQUIRE_NOTHROW(drive.run(plan));
          std::ranges::copy(data, oracle.begin() + static_cast<std::ptrdiff_t>(offset.value));
          for (std::uint64_t p = offset.value / page; p * page < offset.value + length.value; ++p) {
            mapped[p] = true;
            ++host_programs;
          }
        } else if (action < 9) {
          std::vector<std::byte> data(length.value);
          const IoPlan plan = drive.ftl.read(offset, length, data);
          REQUIRE_NOTHROW(drive.run(plan));
          REQUIRE(std::memcmp(data.data(), oracle.data() + offset.value, length.value) == 0);
          std::uint64_t expected = 0;
          for (std::uint64_t p = offset.value / page; p * page < offset.value + length.value; ++p) {
            expected += mapped[p] ? 1 : 0;
          }
          REQUIRE((plan.phases.empty() ? 0 : plan.phases[0].size()) == expected);
        } else {
          REQUIRE(drive.ftl.trim(offset, length).status == IoStatus::ok);
          for (std::uint64_t p = (offset.value + page - 1) / page; (p + 1) * page <= offset.value + length.value; ++p) {
            std::memset(oracle.data() + p * page, 0, page);
            mapped[p] = false;
          }
        }
        if (step % 50 == 0) check_mapping(drive);
      }
      check_mapping(drive);
      const BlockFtlStats& s = drive.ftl.stats();
      CHECK(s.gc_erases > 10);
      CHECK(s.gc_erases == drive.flash.erases);
      CHECK(s.host_pages_written == host_programs);
      CHECK(drive.flash.programs == s.host_pages_written + s.gc_pages_moved);
      CHECK(s.write_amplification() >= 1.0);
      CHECK(drive.store.integrity_errors() == 0);
      // Conservation: each mapped page is valid once, whatever was moved.
      std::uint64_t valid = 0;
      for (std::uint32_t b = 0; b < c.geometry.blocks(); ++b) valid += drive.blocks.valid_pages(BlockId{b});
      CHECK(valid == static_cast<std::uint64_t>(std::ranges::count(mapped, true)));
    }
  }
}

namespace {

bool same(const std::vector<Phase>& a, const std::vector<Phase>& b) {
  const auto same_op = [](const PageOp& x, const PageOp& y) {
    return x.ppa == y.ppa && x.kind == y.kind && x.op_class == y.op_class && x.channel_bytes == y.channel_bytes;
  };
  return std::ranges::equal(a, b, [&](const Phase& x, const Phase& y) { return std::ranges::equal(x, y, same_op); });
}

/// A drive, the load of its planes, and the older versions of pages that it has told of.
struct Side {
  Side(const FlashGeometry& g, const BlockFtlConfig& config, bool by_load)
      : drive(g, {12, 0}, DataMode::timing, config, {.handles = config.handles}),
        load(g, config.stripe_order, {SimTime{50}, SimTime{600}, SimTime{3000}}, false) {
    if (by_load) drive.ftl.place_by(load);
    if (config.volatile_lines)
      drive.ftl.on_replaced([this](PhysicalPageAddress, PhysicalPageAddress old) { replaced.push_back(old); });
  }
  IoPlan write(Bytes offset, Bytes length, PlacementHandle handle) {
    replaced.clear();
    return drive.ftl.write(offset, length, {}, nullptr, handle);
  }
  Drive drive;
  PlaneLoad load;
  std::vector<PhysicalPageAddress> replaced;
};

/// Runs the steps of background collection that a plane wants, which are the same.
void collect_in_background(Side& a, Side& b, PlaneId plane) {
  while (a.drive.ftl.wants_background_step(plane)) {
    const std::optional<IoPlan> one = a.drive.ftl.background_step(plane), other = b.drive.ftl.background_step(plane);
    REQUIRE(one.has_value() == other.has_value());
    if (!one) return;
    REQUIRE(same(one->phases, other->phases));
    a.drive.run(*one);
    b.drive.run(*other);
  }
}

}  // namespace

TEST_CASE("a write of one page without a plan leaves the state, and takes the operations, of a write with one") {
  const std::uint64_t seed = GENERATE(range(1, 13));
  CAPTURE(seed);
  std::mt19937_64 rng(seed);
  const FlashGeometry g{2, 2, 2, 12, 8, Bytes{512}};
  const BlockFtlConfig config{.over_provisioning = 0.2,
                              .gc_free_blocks = 1 + static_cast<std::uint32_t>(seed % 2),
                              .allocation = seed % 4 == 0 ? PageAllocation::fixed : PageAllocation::dynamic,
                              .background_free_blocks = seed % 3 == 0 ? 2U : 0U,
                              .wear_spread = seed % 5 == 0 ? 3U : 0U,
                              .gc_pace = seed % 6 == 0 ? GcPace::blocks : GcPace::steps,
                              .volatile_lines = seed % 2 == 0,
                              .handles = 1 + static_cast<std::uint32_t>(seed % 3 == 1)};
  Side with(g, config, seed % 4 != 1), without(g, config, seed % 4 != 1);
  const std::uint64_t page = g.page_size.value, pages = with.drive.pages();
  std::uint64_t short_ways = 0, collected = 0;
  std::vector<PlaneId> loaded;  // of both
  for (int step = 0; step < 6'000; ++step) {
    const Bytes offset{rng() % pages * page}, several = std::min(Bytes{3 * page}, Bytes{pages * page} - offset);
    const Bytes length = rng() % 12 > 0 ? Bytes{page} : rng() % 2 == 0 ? Bytes{page / 2} : several;
    const PlacementHandle handle{static_cast<std::uint16_t>(rng() % config.handles)};
    if (rng() % 40 == 0)
      for (Side* side : {&with, &without}) side->drive.run(side->drive.ftl.trim(offset, length));
    IoPlan plan = with.write(offset, length, handle);
    const auto alone = without.drive.ftl.write_in_line(offset, length, handle);
    REQUIRE(plan.status == IoStatus::ok);
    if (!alone) {
      with.drive.run(plan);
      without.drive.run(without.write(offset, length, handle));
    } else {
      ++short_ways;
      const std::vector<Phase> behind = plan.take_behind(), program{{*alone->program}};
      REQUIRE(length.value == page);
      REQUIRE(same(plan.phases, program));
      REQUIRE(same(behind, alone->behind));
      collected += behind.size();
      REQUIRE(alone->plane == g.plane_of(alone->first));
      REQUIRE(alone->replaced.has_value() == !with.replaced.empty());
      if (alone->replaced) REQUIRE(*alone->replaced == g.block_of(with.replaced.back()));
      loaded.push_back(alone->plane);
      for (Side* side : {&with, &without}) {
        side->load.add(alone->plane, SimTime{600});
        side->drive.run({.phases = program});
        side->drive.run({.phases = behind});
      }
    }
    if (loaded.size() > rng() % 24) {
      const auto plane = loaded.begin() + static_cast<std::ptrdiff_t>(rng() % loaded.size());
      for (Side* side : {&with, &without}) side->load.remove(*plane, SimTime{600});
      loaded.erase(plane);
    }
    for (std::uint32_t p = 0; p < g.planes(); ++p) collect_in_background(with, without, PlaneId{p});
    if (step % 100 > 0) continue;
    for (LogicalPage p{0}; p.value < pages; ++p.value) REQUIRE(with.drive.ftl.lookup(p) == without.drive.ftl.lookup(p));
    check_mapping(without.drive);
  }
  const BlockFtlStats &a = with.drive.ftl.stats(), &b = without.drive.ftl.stats();
  CHECK(a.host_pages_written == b.host_pages_written);
  CHECK(a.host_bytes_written == b.host_bytes_written);
  CHECK(a.gc_pages_moved == b.gc_pages_moved);
  CHECK(a.gc_erases == b.gc_erases);
  CHECK(a.gc_erases > 500);
  CHECK(short_ways > 2'000);
  if (config.background_free_blocks == 0) CHECK((collected > 500) == (config.gc_pace == GcPace::steps));
}

TEST_CASE("unwritten pages read as zeros without flash, and requests beyond the end are refused") {
  Drive drive({2, 1, 1, 8, 4, Bytes{512}}, {8, 0}, DataMode::carried);
  std::vector<std::byte> data(1024, std::byte{1});
  const IoPlan plan = drive.ftl.read(Bytes{0}, Bytes{1024}, data);
  CHECK(plan.phases.empty());
  CHECK(std::ranges::all_of(data, [](std::byte b) { return b == std::byte{0}; }));
  CHECK(drive.ftl.stats().unwritten_reads == 2);
  const Bytes end = drive.ftl.capacity();
  CHECK(drive.ftl.read(end, Bytes{512}).status == IoStatus::out_of_range);
  CHECK(drive.ftl.write(end - Bytes{512}, Bytes{1024}).status == IoStatus::out_of_range);
  CHECK(drive.ftl.trim(Bytes{~std::uint64_t{0}}, Bytes{2}).status == IoStatus::out_of_range);
  CHECK(drive.ftl.read(end, Bytes{0}).status == IoStatus::ok);
  CHECK(end.value % 512 == 0);
}

TEST_CASE("a partial write reads, merges and programs, in this order") {
  Drive drive({1, 1, 1, 8, 4, Bytes{512}}, {8, 0}, DataMode::carried);
  drive.ftl.write(Bytes{0}, Bytes{512}, std::vector<std::byte>(512, std::byte{1}));
  const IoPlan plan = drive.ftl.write(Bytes{100}, Bytes{10}, std::vector<std::byte>(10, std::byte{2}));
  REQUIRE(plan.phases.size() == 2);
  CHECK(plan.phases[0][0].kind == PageOpKind::read);
  CHECK(plan.phases[0][0].ppa == PhysicalPageAddress{0});
  CHECK(plan.phases[1][0].kind == PageOpKind::program);
  CHECK(plan.phases[1][0].ppa == PhysicalPageAddress{1});
  std::vector<std::byte> data(512);
  drive.ftl.read(Bytes{0}, Bytes{512}, data);
  for (std::size_t i = 0; i < 512; ++i)
    CHECK(data[i] == std::byte{i >= 100 && i < 110 ? std::uint8_t{2} : std::uint8_t{1}});
}

TEST_CASE("a namespace too small to collect garbage in, and bad ratios, are refused with numbers") {
  const FlashGeometry g{1, 1, 1, 8, 4, Bytes{512}};
  BackingStore store(g, DataMode::timing);
  BlockManager small(g, {5, 3});
  CHECK_THROWS_WITH(BlockFtl({}, small, store), Catch::Contains("5 blocks a plane") && Catch::Contains("more than 5"));
  BlockManager blocks(g, {8, 0});
  BlockFtlConfig config;
  config.over_provisioning = 1.0;
  CHECK_THROWS_AS(BlockFtl(config, blocks, store), UserError);
  config.over_provisioning = 0.5;
  CHECK(BlockFtl(config, blocks, store).capacity() == Bytes{16 * 512});
  config.gc_free_blocks = 0;
  CHECK_THROWS_AS(BlockFtl(config, blocks, store), UserError);
}

TEST_CASE("a preconditioned drive reads flash everywhere and takes random writes with write amplification") {
  const FlashGeometry g{2, 2, 1, 32, 16, Bytes{4096}};
  for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{5}}) {
    Drive drive(g, {32, 0}, DataMode::timing);
    const Bytes working_set{drive.ftl.capacity().value / 4096 * 9 / 10 * 4096};
    const std::uint64_t pages = working_set.value / 4096;
    drive.ftl.precondition(working_set, seed);
    check_mapping(drive);
    // The flash behind it, programmed in page order.
    for (std::uint64_t ppa = 0; ppa < g.pages(); ++ppa) {
      const BlockId block = g.block_of({ppa});
      if (g.page_in_block({ppa}) < drive.blocks.written_pages(block)) {
        drive.flash.run({{ppa}, PageOpKind::program, OpClass::host, 0, 4096}, true);
      }
    }
    std::mt19937_64 rng(11);
    const IoPlan all = drive.ftl.read(Bytes{0}, working_set);
    REQUIRE(all.phases.size() == 1);
    CHECK(all.phases[0].size() == pages);
    if (!seed) {
      for (std::uint64_t i = 0; i + 1 < 4; ++i) {
        CHECK(g.plane_of(all.phases[0][i].ppa) != g.plane_of(all.phases[0][i + 1].ppa));
      }
    }
    for (int i = 0; i < 20'000; ++i) {
      const Bytes offset{rng() % pages * 4096};
      const IoPlan plan = rng() % 4 == 0 ? drive.ftl.read(offset, Bytes{4096}) : drive.ftl.write(offset, Bytes{4096});
      REQUIRE(plan.status == IoStatus::ok);
      REQUIRE_NOTHROW(drive.run(plan));
    }
    check_mapping(drive);
    CHECK(drive.ftl.stats().unwritten_reads == 0);
    const double wa = drive.ftl.stats().write_amplification();
    CAPTURE(wa);
    CHECK(wa > 1.5);
    CHECK(wa < 8.0);
    CHECK_THROWS_AS(drive.ftl.precondition(working_set, seed), UserError);
  }
  Drive carried(g, {32, 0}, DataMode::carried);
  CHECK_THROWS_AS(carried.ftl.precondition(Bytes{4096}, std::nullopt), UserError);
  Drive timing(g, {32, 0}, DataMode::timing);
  CHECK_THROWS_AS(timing.ftl.precondition(timing.ftl.capacity() + Bytes{1}, std::nullopt), UserError);
}

TEST_CASE("sequential overwriting costs no amplification") {
  Drive drive({2, 1, 1, 16, 8, Bytes{512}}, {16, 0}, DataMode::timing);
  const std::uint64_t pages = drive.ftl.capacity().value / 512;
  for (int round = 0; round < 5; ++round) {
    for (std::uint64_t p = 0; p < pages; ++p) drive.run(drive.ftl.write(Bytes{p * 512}, Bytes{512}));
  }
  CHECK(drive.ftl.stats().gc_erases > 0);
  CHECK(drive.ftl.stats().write_amplification() == Approx(1.0).margin(0.02));
}

TEST_CASE("a plane full of valid pages keeps the block that its collection needs") {
  const FlashGeometry g{1, 2, 1, 7, 8, Bytes{512}};
  Drive drive(g, {7, 0}, DataMode::timing, {0.0, 1, kChannelDiePlane, PageCheck::key});
  const std::uint64_t pages = drive.ftl.capacity().value / 512;
  REQUIRE(pages == 64);
  const auto write = [&](std::uint64_t page) {
    const IoPlan plan = drive.ftl.write(Bytes{page * 512}, Bytes{512});
    REQUIRE(plan.status == IoStatus::ok);
    REQUIRE_NOTHROW(drive.run(plan));
    return g.plane_of(drive.ftl.lookup(LogicalPage{page})).value;
  };
  // Rewrite each page until it lies in plane 0, as long as that plane takes any.
  std::uint64_t settled = 0;
  for (int misses = 0; misses < 4 && settled < pages;) {
    if (write(settled) == 0) {
      ++settled;
      misses = 0;
    } else {
      ++misses;
    }
  }
  CHECK(settled == 48);
  // One page of each of its blocks stays; everything else moves about.
  for (int round = 0; round < 4; ++round) {
    for (std::uint64_t p = 0; p < pages; ++p) {
      if (p >= settled || p % 8 != 0) write(p);
    }
  }
  check_mapping(drive);
}

}  // namespace test_block_ftl
