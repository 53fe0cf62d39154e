// Background collection, wear levelling, where pages are placed.
#include <catch2/catch.hpp>
#include <cmath>

#include "base/rng.h"
#include "block_drive.h"

namespace test_block_background {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage = Bytes::kib(4);

std::size_t collected_ops(const IoPlan& plan) {
  std::size_t ops = 0;
  for (const Phase& phase : plan.phases) ops += std::ranges::count(phase, OpClass::gc, &PageOp::op_class);
  return ops;
}

}  // namespace

TEST_CASE("background steps take collection out of the writes, a few pages at a time") {
  const FlashGeometry g{2, 1, 2, 64, 16, kPage};
  for (const bool background : {false, true}) {
    Drive drive(g, {64, 0}, DataMode::timing,
                {.over_provisioning = 0.15,
                 .background_free_blocks = background ? 5u : 0u,
                 .gc_step_pages = 3,
                 .gc_pace = GcPace::blocks});
    for (std::uint64_t p = 0; p < drive.pages(); ++p) drive.run(drive.ftl.write(kPage * p, kPage));
    const BlockFtlStats filled = drive.ftl.stats();
    Rng rng(1);
    std::size_t urgent = 0;
    std::size_t longest = 0;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t page = rng.below(drive.pages());
      const IoPlan plan = drive.ftl.write(kPage * page, kPage);
      REQUIRE_NOTHROW(drive.run(plan));
      longest = std::max(longest, collected_ops(plan));
      urgent += collected_ops(plan) > 0 ? 1 : 0;
      const PlaneId plane = drive.blocks.plane_of(drive.ftl.lookup(LogicalPage{page}));
      for (int steps = 0; steps < 3 && drive.ftl.wants_background_step(plane); ++steps) {
        const auto step = drive.ftl.background_step(plane);
        if (!step) break;
        REQUIRE(step->phases.size() <= 3);
        REQUIRE(collected_ops(*step) <= 2 * 3 + 1);
        REQUIRE_NOTHROW(drive.run(*step));
      }
      if (i % 1000 == 0) check_mapping(drive);
    }
    check_mapping(drive);
    CAPTURE(background, urgent, longest);
    const BlockFtlStats& s = drive.ftl.stats();
    CHECK(s.gc_erases - filled.gc_erases > 1000);
    CHECK(drive.flash.programs == s.host_pages_written + s.gc_pages_moved);
    if (background) {
      CHECK(urgent == 0);
      CHECK(s.background_steps > 5000);
    } else {
      CHECK(urgent > 1000);
      CHECK(longest > 16);
      CHECK(s.background_steps == 0);
      CHECK_FALSE(drive.ftl.background_step(PlaneId{0}).has_value());
    }
  }
}

TEST_CASE("a write that cannot wait for the background finishes its victim") {
  const FlashGeometry g{1, 1, 1, 64, 16, kPage};
  Drive drive(g, {64, 0}, DataMode::timing,
              {.background_free_blocks = 8, .gc_step_pages = 1, .gc_pace = GcPace::blocks});
  for (std::uint64_t p = 0; p < drive.pages(); ++p) drive.run(drive.ftl.write(kPage * p, kPage));
  Rng rng(2);
  std::size_t urgent = 0;
  for (int i = 0; i < 5'000; ++i) {
    const IoPlan plan = drive.ftl.write(kPage * rng.below(drive.pages()), kPage);
    REQUIRE(plan.status == IoStatus::ok);
    REQUIRE_NOTHROW(drive.run(plan));
    urgent += collected_ops(plan) > 0 ? 1 : 0;
    // One page a write is far too slow.
    if (const auto step = drive.ftl.background_step(PlaneId{0})) REQUIRE_NOTHROW(drive.run(*step));
  }
  check_mapping(drive);
  CHECK(urgent > 50);
}

TEST_CASE("static wear levelling bounds the spread of erase counts under skewed writes; without it they run apart") {
  const FlashGeometry g{1, 1, 2, 64, 16, kPage};
  const auto measure = [&](std::uint32_t spread, FreeBlockChoice choice) {
    Drive drive(g, {64, 0}, DataMode::timing, {.over_provisioning = 0.2, .wear_spread = spread},
                {.free_block = choice});
    for (std::uint64_t p = 0; p < drive.pages(); ++p) drive.run(drive.ftl.write(kPage * p, kPage));
    Rng rng(3);
    // A tenth of the pages takes all writes.
    for (int i = 0; i < 200'000; ++i) drive.run(drive.ftl.write(kPage * rng.below(drive.pages() / 10), kPage));
    check_mapping(drive);
    if (spread > 0) {
      CHECK(drive.ftl.stats().wear_erases > 10);
      CHECK(drive.ftl.stats().wear_pages_moved > 100);
    } else {
      CHECK(drive.ftl.stats().wear_pages_moved == 0);
    }
    return drive.blocks.wear();
  };
  for (const FreeBlockChoice choice : {FreeBlockChoice::oldest, FreeBlockChoice::least_worn}) {
    const WearStatistics none = measure(0, choice);
    const WearStatistics levelled = measure(20, choice);
    CAPTURE(none.min, none.max, none.mean, levelled.min, levelled.max, levelled.mean);
    CHECK(none.min == 0);
    CHECK(none.max > 200);
    CHECK(levelled.max - levelled.min <= 20 + 2);
    CHECK(levelled.mean < 1.1 * none.mean);
  }
}

TEST_CASE("dynamic wear levelling opens the least worn free block") {
  const FlashGeometry g{1, 1, 1, 4, 2, kPage};
  for (const FreeBlockChoice choice : {FreeBlockChoice::oldest, FreeBlockChoice::least_worn}) {
    BlockManager blocks(g, {4, 0}, {.free_block = choice});
    const PlaneId plane{0};
    const auto fill = [&] {
      const PhysicalPageAddress first = blocks.allocate(plane, Stream::host).value();
      blocks.allocate(plane, Stream::host);
      return blocks.block_of(first);
    };
    const auto recycle = [&](BlockId block) {
      for (std::uint64_t i = 0; i < 2; ++i) blocks.invalidate({blocks.first_page(block).value + i});
      blocks.begin_erase(block);
      blocks.finish_erase(block);
    };
    for (int i = 0; i < 4; ++i) fill();
    recycle(BlockId{2});
    CHECK(fill() == BlockId{2});
    recycle(BlockId{2});
    recycle(BlockId{1});
    // Block 2 has been free for longer, but was erased twice.
    CHECK(fill() == BlockId{choice == FreeBlockChoice::oldest ? 2u : 1u});
    CHECK(blocks.wear().max == 2);
    CHECK(blocks.wear().min == 0);
    CHECK(blocks.wear().mean == Approx(0.75));
    CHECK(blocks.wear().deviation == Approx(std::sqrt((0 + 1 + 4 + 0) / 4.0 - 0.75 * 0.75)));
  }
}

TEST_CASE("fixed allocation keeps every page on the plane of its rank, in any stripe order, whatever moves") {
  const FlashGeometry g{2, 2, 2, 24, 8, kPage};
  std::array order{StripeLevel::channel, StripeLevel::die, StripeLevel::plane};
  std::ranges::sort(order);
  do {
    const Stripe stripe(g, order);
    for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{9}}) {
      Drive drive(g, {24, 0}, DataMode::timing, {.stripe_order = order, .allocation = PageAllocation::fixed});
      drive.ftl.precondition(drive.ftl.capacity(), seed);
      drive.program_what_is_written();
      Rng rng(1);
      for (int i = 0; i < 3000; ++i) {
        const IoPlan plan = drive.ftl.write(kPage * rng.below(drive.pages()), kPage);
        REQUIRE(plan.status == IoStatus::ok);
        REQUIRE_NOTHROW(drive.run(plan));
      }
      for (std::uint64_t p = 0; p < drive.pages(); ++p) {
        REQUIRE(drive.blocks.plane_of(drive.ftl.lookup(LogicalPage{p})) == stripe.plane_at(p));
      }
      check_mapping(drive);
      CHECK(drive.ftl.stats().gc_pages_moved > 100);
    }
  } while (std::ranges::next_permutation(order).found);
}

}  // namespace test_block_background
