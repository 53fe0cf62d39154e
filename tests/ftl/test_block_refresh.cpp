// Blocks of the block namespace that move because of their age: no page grows old, and nothing is lost.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "base/rng.h"
#include "block_drive.h"

namespace test_block_refresh {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

constexpr SimTime kAge = SimTime::milliseconds(50), kStep = SimTime::milliseconds(7);

/// A drive with a clock, and what it should hold.
struct Aging {
  Aging(const FlashGeometry& g, const BlockFtlConfig& config)
      : drive(g, {.block_namespace = g.blocks_per_plane}, DataMode::carried, config) {}

  void run(const IoPlan& plan) {
    REQUIRE(plan.status == IoStatus::ok);
    for (const Phase& phase : plan.phases)
      for (const PageOp& op : phase)
        if (op.kind == PageOpKind::program) programmed[op.ppa.value] = now;
    drive.run(plan);
  }
  void write(std::uint64_t page, std::byte value) {
    run(drive.ftl.write(kPage * page, kPage, std::vector<std::byte>(kPage.value, value)));
    content[page] = value;
  }
  /// What the firmware does when a command comes.
  void command() {
    drive.ftl.pass(now);
    for (std::uint32_t plane = 0; plane < drive.blocks.geometry().planes(); ++plane)
      while (const auto step = drive.ftl.refresh_step(PlaneId{plane})) run(*step);
  }
  SimTime oldest() {
    SimTime oldest{};
    for (const auto& [page, value] : content)
      oldest = std::max(oldest, now - programmed.at(drive.ftl.lookup(LogicalPage{page}).value));
    return oldest;
  }
  void check() {
    for (const auto& [page, value] : content) {
      std::vector<std::byte> bytes(kPage.value);
      run(drive.ftl.read(kPage * page, kPage, bytes));
      REQUIRE(std::ranges::all_of(bytes, [v = value](std::byte b) { return b == v; }));
    }
    REQUIRE(drive.store.integrity_errors() == 0);
  }

  static constexpr Bytes kPage{512};
  BlockDrive drive;
  SimTime now{};
  std::map<std::uint64_t, std::byte> content;
  std::map<std::uint64_t, SimTime> programmed;  ///< by flash page
};

}  // namespace

TEST_CASE("no page of the block namespace grows older than refresh_age and the time between commands") {
  for (const std::uint64_t seed : {1u, 2u, 3u, 4u})
    for (const bool refreshes : {false, true}) {
      CAPTURE(seed, refreshes);
      BlockFtlConfig config;
      config.over_provisioning = 0.3;
      config.gc_pace = seed % 2 == 0 ? GcPace::steps : GcPace::blocks;
      if (refreshes) config.refresh_age = kAge;
      if (seed > 2) config.map_cache_entries = 64;
      Aging d({2, 1, 2, 16, 8, Aging::kPage}, config);
      Rng rng(seed, "refresh");
      const std::uint64_t pages = d.drive.pages();
      for (std::uint64_t page = 0; page < pages; ++page) d.write(page, std::byte(page * 5 + 1));
      SimTime oldest{};
      for (int step = 0; step < 60; ++step) {
        d.now += kStep;
        d.command();
        // A tenth of the pages are written now and then, the others never.
        for (int i = 0; i < 3; ++i) d.write(rng.below(pages / 10), std::byte(rng.below(256)));
        oldest = std::max(oldest, d.oldest());
      }
      d.check();
      const BlockFtlStats& stats = d.drive.ftl.stats();
      if (seed <= 2) check_mapping(d.drive);
      if (refreshes) {
        CHECK(oldest < kAge + kStep);
        CHECK(oldest > kAge - kStep);
        // All pages move, in blocks of 8, every 50 to 57 ms for 420 ms.
        CHECK(stats.refreshed_blocks >= 7 * pages * 9 / 10 / 8);
        CHECK(stats.refresh_pages_moved >= 7 * pages * 9 / 10);
        CHECK(stats.write_amplification() > 1 + 7 * 0.9 * double(pages) / double(stats.host_pages_written));
      } else {
        CHECK(oldest == kStep * 60);
        CHECK(stats.refreshed_blocks == 0);
      }
    }
}

TEST_CASE("what was filled before the simulation is as old as the simulation") {
  BlockFtlConfig config;
  config.over_provisioning = 0.3;
  config.refresh_age = kAge;
  BlockDrive drive({2, 1, 2, 16, 8, Aging::kPage}, {.block_namespace = 16}, DataMode::timing, config);
  drive.ftl.precondition(Aging::kPage * (drive.pages() / 2), std::nullopt);
  drive.program_what_is_written();
  const auto step = [&](SimTime now) {
    drive.ftl.pass(now);
    std::uint64_t before = drive.ftl.stats().refresh_pages_moved;
    for (std::uint32_t plane = 0; plane < 4; ++plane)
      while (const auto plan = drive.ftl.refresh_step(PlaneId{plane})) drive.run(*plan);
    return drive.ftl.stats().refresh_pages_moved - before;
  };
  CHECK(step(kAge - SimTime{1}) == 0);
  CHECK(step(kAge) == drive.pages() / 2);
  CHECK(step(kAge * 2 - SimTime{1}) == 0);
  CHECK(step(kAge * 2) == drive.pages() / 2);
  check_mapping(drive);
}

}  // namespace test_block_refresh
