// Collection in steps that the writes pay for, and writes to pages whose program has not begun.
#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <set>
#include <tuple>

#include "base/rng.h"
#include "block_drive.h"

namespace test_gc_steps {

using namespace csdsim;
using namespace csdsim::ftl;
using csdsim::ftl::test::check_mapping;
using Drive = csdsim::ftl::test::BlockDrive;

namespace {

constexpr Bytes kPage = Bytes::kib(4);

/// Operations of collection in phases [first, last) of a plan.
struct Collected {
  std::uint32_t moves = 0;
  std::uint32_t erases = 0;
  bool operator==(const Collected&) const = default;
};
Collected collected(const IoPlan& plan, std::size_t first, std::size_t last) {
  Collected sum;
  for (std::size_t i = first; i < last; ++i)
    for (const PageOp& op : plan.phases[i]) {
      if (op.op_class != OpClass::gc) continue;
      sum.moves += op.kind == PageOpKind::program ? 1 : 0;
      sum.erases += op.kind == PageOpKind::erase ? 1 : 0;
    }
  return sum;
}
Collected before(const IoPlan& plan) { return collected(plan, 0, plan.phases.size() - plan.behind); }
Collected behind(const IoPlan& plan) { return collected(plan, plan.phases.size() - plan.behind, plan.phases.size()); }

/// One plane, filled in order; the first `dead` pages of block 0 are overwritten. The next write
/// opens a block and leaves two free.
struct OnePlane {
  static constexpr std::uint32_t kPages = 8;
  Drive drive;

  OnePlane(std::uint32_t dead, GcPace pace, std::uint32_t pages = kPages)
      : drive({1, 1, 1, 14, pages, kPage}, {14, 0}, DataMode::timing,
              {.over_provisioning = 0.21, .gc_free_blocks = 2, .gc_pace = pace}) {
    REQUIRE(drive.pages() == 11 * pages);
    for (std::uint64_t p = 0; p < 8 * pages; ++p) write(p);
    for (std::uint64_t p = 0; p < dead; ++p) write(p);
    // For two blocks more the victim is left alone.
    for (std::uint64_t p = 8 * pages; p < 11 * pages - dead; ++p) write(p);
    REQUIRE(drive.blocks.open_pages(PlaneId{0}, Stream::host) == 0);
    REQUIRE(drive.blocks.available_blocks(PlaneId{0}, Namespace::block) == 3);
  }
  IoPlan write(std::uint64_t page) {
    IoPlan plan = drive.ftl.write(kPage * page, kPage);
    REQUIRE(plan.status == IoStatus::ok);
    REQUIRE_NOTHROW(drive.run(plan));
    return plan;
  }
};

}  // namespace

TEST_CASE(
    "a victim of v valid pages is moved evenly over the writes that it makes room for, and erased with the last") {
  for (std::uint32_t dead = 1; dead < OnePlane::kPages; ++dead) {
    CAPTURE(dead);
    OnePlane plane(dead, GcPace::steps);
    const std::uint32_t valid = OnePlane::kPages - dead;
    std::uint32_t moved = 0;
    // The writes go to a page of each of the other blocks.
    for (std::uint32_t written = 1; written <= dead; ++written) {
      const IoPlan plan = plane.write(std::uint64_t{OnePlane::kPages} * written);
      CHECK(before(plan) == Collected{});
      CHECK(plan.phases.front().size() == 1);
      moved += behind(plan).moves;
      CHECK(moved == written * valid / dead);
      CHECK(behind(plan).erases == (written == dead ? 1 : 0));
    }
    CHECK(moved == valid);
    CHECK(plane.drive.ftl.stats().gc_erases == 1);
    check_mapping(plane.drive);
  }
}

TEST_CASE("a victim that has lost a page is left alone for 16 writes to each plane, or until a block is opened") {
  // The first write takes a page of the victim, the others pages of other blocks.
  OnePlane large(4, GcPace::steps, 32);
  CHECK(behind(large.write(4)) == Collected{});
  for (std::uint64_t i = 1; i < 16; ++i) CHECK(behind(large.write(32 * (1 + i % 7) + i)) == Collected{});
  CHECK(behind(large.write(250)) == Collected{5, 0});  // 27 pages, moved over the five writes that they make room for
  OnePlane small(3, GcPace::steps);
  CHECK(behind(small.write(3)) == Collected{});
  for (std::uint64_t i = 1; i < 8; ++i) CHECK(behind(small.write(8 * i)) == Collected{});
  CHECK(small.drive.blocks.available_blocks(PlaneId{0}, Namespace::block) == 2);
  CHECK(behind(small.write(9)) == Collected{2, 0});  // late: it pays twice
}

TEST_CASE("whole blocks are collected before the write that opens one, and behind none") {
  OnePlane plane(3, GcPace::blocks);
  const IoPlan first = plane.write(8);  // it leaves two free blocks
  CHECK(before(first) == Collected{});
  CHECK(first.behind == 0);
  for (std::uint32_t i = 1; i < OnePlane::kPages; ++i) CHECK(plane.write(8 + i).phases.size() == 1);
  // Nothing of block 1, which is dead by now, has to be moved.
  const IoPlan opens = plane.write(16);
  CHECK(before(opens) == Collected{0, 1});
  CHECK(opens.behind == 0);
}

TEST_CASE("pages of the victim that are overwritten meanwhile are not moved") {
  OnePlane plane(4, GcPace::steps);
  CHECK(behind(plane.write(8)) == Collected{1, 0});
  // The three that are left of the victim: the last of them takes its erase along.
  CHECK(behind(plane.write(7)) == Collected{1, 0});
  CHECK(behind(plane.write(6)) == Collected{0, 1});
  CHECK(plane.drive.ftl.stats().gc_pages_moved == 2);
  check_mapping(plane.drive);
}

TEST_CASE(
    "in steps hardly a write waits for collection, a request's steps follow all its pages, and as much is moved") {
  const FlashGeometry g{2, 1, 2, 64, 32, kPage};
  const auto measure = [&](GcPace pace) {
    Drive drive(g, {64, 0}, DataMode::timing, {.over_provisioning = 0.2, .gc_pace = pace});
    drive.ftl.precondition(drive.ftl.capacity(), 7);
    drive.program_what_is_written();
    Rng rng(1);
    std::uint32_t waited = 0, most = 0;
    BlockFtlStats steady;
    for (int i = 0; i < 60'000; ++i) {
      if (i == 30'000) steady = drive.ftl.stats();
      const std::uint64_t count = 1 + rng.below(rng.below(8) == 0 ? 12 : 1);
      const IoPlan plan = drive.ftl.write(kPage * rng.below(drive.pages() - count), kPage * count);
      REQUIRE(plan.status == IoStatus::ok);
      REQUIRE_NOTHROW(drive.run(plan));
      if (i < 30'000) continue;
      waited += before(plan).moves;
      if (count == 1) most = std::max(most, before(plan).moves + behind(plan).moves);
    }
    check_mapping(drive);
    const BlockFtlStats& s = drive.ftl.stats();
    const double moved = static_cast<double>(s.gc_pages_moved - steady.gc_pages_moved) /
                         static_cast<double>(s.host_pages_written - steady.host_pages_written);
    return std::tuple{waited, most, moved};
  };
  const auto [waited, most, moved] = measure(GcPace::steps);
  const auto [waited_whole, most_whole, moved_whole] = measure(GcPace::blocks);
  CAPTURE(waited, most, moved, waited_whole, most_whole, moved_whole);
  CHECK(waited < waited_whole / 100);
  CHECK(most <= 12);
  CHECK(waited_whole > 30'000);
  CHECK(most_whole > 16);
  CHECK(1 + moved == Approx(1 + moved_whole).epsilon(0.03));  // write amplification
}

TEST_CASE("in steps, too, sequential overwriting moves next to nothing, wherever it begins") {
  for (const GcPolicy policy : {GcPolicy::greedy, GcPolicy::fifo, GcPolicy::cost_benefit})
    for (const std::uint64_t first : {0u, 5u, 17u}) {
      Drive drive({2, 1, 1, 32, 16, kPage}, {32, 0}, DataMode::timing, {.over_provisioning = 0.15},
                  {.gc = {.kind = policy}});
      for (std::uint64_t p = 0; p < drive.pages() * 6; ++p) {
        // Some other pages first, so that blocks do not begin where the sequence does.
        const std::uint64_t page = p < first ? drive.pages() - 1 - p : p % drive.pages();
        REQUIRE_NOTHROW(drive.run(drive.ftl.write(kPage * page, kPage)));
      }
      CAPTURE(static_cast<int>(policy), first, drive.ftl.stats().gc_pages_moved, drive.ftl.stats().host_pages_written);
      CHECK(drive.ftl.stats().gc_erases > 100);
      CHECK(drive.ftl.stats().write_amplification() < 1.03);
    }
}

TEST_CASE("a write that finds the last free block but one waits for the rest of the victim") {
  // One free block: the host may not open it, so that steps come too late.
  const FlashGeometry g{1, 1, 1, 64, 16, kPage};
  Drive drive(g, {64, 0}, DataMode::timing, {.over_provisioning = 0.1, .gc_free_blocks = 1});
  for (std::uint64_t p = 0; p < drive.pages(); ++p) drive.run(drive.ftl.write(kPage * p, kPage));
  Rng rng(2);
  std::uint32_t waited = 0;
  for (int i = 0; i < 5'000; ++i) {
    const IoPlan plan = drive.ftl.write(kPage * rng.below(drive.pages()), kPage);
    REQUIRE(plan.status == IoStatus::ok);
    REQUIRE_NOTHROW(drive.run(plan));
    waited += before(plan).erases;
  }
  CHECK(waited > 10);
  check_mapping(drive);
}

TEST_CASE("writes to held pages change them in place, like a map of bytes; others take a program") {
  const std::uint64_t seed = 4;
  CAPTURE(seed);
  const FlashGeometry g{2, 1, 1, 24, 8, Bytes{512}};
  Drive drive(g, {24, 0}, DataMode::carried, {.over_provisioning = 0.1, .check = PageCheck::key_and_crc});
  std::set<std::uint64_t> held;
  drive.ftl.coalesce([&](PhysicalPageAddress ppa) { return held.contains(ppa.value); });
  std::mt19937_64 rng(seed);
  const std::uint64_t capacity = drive.ftl.capacity().value;
  std::vector<std::byte> oracle(capacity, std::byte{0});
  std::uint64_t in_place = 0, programs = 0;
  for (int step = 0; step < 6'000; ++step) {
    if (step % 40 == 0) held.clear();
    const std::uint64_t first = rng() % (rng() % 2 == 0 ? 4096 : capacity - 2048) / 64 * 64;
    const std::uint64_t length = (rng() % 24 + 1) * 64;
    std::vector<std::byte> data(length);
    for (std::byte& b : data) b = static_cast<std::byte>(rng());
    for (std::uint64_t p = first / 512; p * 512 < first + length; ++p) {
      const PhysicalPageAddress at = drive.ftl.lookup(LogicalPage{p});
      ++(at.valid() && held.contains(at.value) ? in_place : programs);
    }
    const IoPlan plan = drive.ftl.write(Bytes{first}, Bytes{length}, data);
    REQUIRE(plan.status == IoStatus::ok);
    REQUIRE_NOTHROW(drive.run(plan));
    std::memcpy(oracle.data() + first, data.data(), length);
    for (const Phase& phase : plan.phases)
      for (const PageOp& op : phase)
        if (op.kind == PageOpKind::program) held.insert(op.ppa.value);
    if (step % 200 == 0) {
      std::vector<std::byte> all(capacity);
      drive.ftl.read({}, Bytes{capacity}, all);
      REQUIRE(std::memcmp(all.data(), oracle.data(), capacity) == 0);
      check_mapping(drive);
    }
  }
  const BlockFtlStats& s = drive.ftl.stats();
  CHECK(s.coalesced_pages > 1'000);
  // A page that its own request moves first may come from or to a held page.
  CHECK(s.coalesced_pages + s.host_pages_written == in_place + programs);
  CHECK(static_cast<double>(s.coalesced_pages) == Approx(static_cast<double>(in_place)).epsilon(0.001));
  CHECK(drive.flash.programs == s.host_pages_written + s.gc_pages_moved);
  CHECK(drive.store.integrity_errors() == 0);
}

}  // namespace test_gc_steps
