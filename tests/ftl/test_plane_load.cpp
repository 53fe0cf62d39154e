// The plane that takes a page first: the tree against a scan, and the block FTL that places by it.
#include <catch2/catch.hpp>
#include <set>
#include <vector>

#include "base/rng.h"
#include "block_drive.h"
#include "ftl/block/plane_load.h"

namespace test_plane_load {

using namespace csdsim;
using namespace csdsim::ftl;

namespace {

constexpr ArrayTimes kTimes{SimTime::microseconds(50), SimTime::microseconds(600), SimTime::milliseconds(3)};

FlashGeometry geometry(std::uint32_t channels, std::uint32_t dies, std::uint32_t planes) {
  return {.channels = channels,
          .dies_per_channel = dies,
          .planes_per_die = planes,
          .blocks_per_plane = 12,
          .pages_per_block = 8,
          .page_size = Bytes::kib(4)};
}

}  // namespace

TEST_CASE("the least loaded plane is the one that a scan in stripe order finds") {
  const std::uint64_t seed = GENERATE(range(1, 21));
  INFO("seed " << seed);
  Rng rng(seed, "plane load");
  const FlashGeometry g =
      geometry(1 + static_cast<std::uint32_t>(rng.below(5)), 1 + static_cast<std::uint32_t>(rng.below(4)),
               1 + static_cast<std::uint32_t>(rng.below(3)));
  const bool shared = rng.below(3) == 0;
  const Stripe stripe(g, kChannelDiePlane);
  PlaneLoad load(g, kChannelDiePlane, kTimes, shared);
  std::vector<std::int64_t> expected(g.planes());
  std::vector<std::pair<PlaneId, SimTime>> added;
  const auto change = [&](PlaneId plane, std::int64_t by) {
    const std::uint32_t sharing = shared ? g.planes_per_die : 1, first = plane.value / sharing * sharing;
    for (std::uint32_t p = first; p < first + sharing; ++p) expected[p] += by;
  };
  for (int step = 0; step < 2000; ++step) {
    if (!added.empty() && rng.below(2) == 0) {
      const std::size_t i = rng.below(added.size());
      load.remove(added[i].first, added[i].second);
      change(added[i].first, -added[i].second.ps);
      added.erase(added.begin() + static_cast<std::ptrdiff_t>(i));
    } else {
      const PlaneId plane{static_cast<std::uint32_t>(rng.below(g.planes()))};
      const SimTime work = SimTime::microseconds(static_cast<std::int64_t>(rng.below(4)));
      load.add(plane, work);
      change(plane, work.ps);
      added.emplace_back(plane, work);
    }
    const auto from = static_cast<std::uint32_t>(rng.below(g.planes()));
    std::uint32_t best = from;
    for (std::uint32_t i = 1; i < g.planes(); ++i) {
      const std::uint32_t rank = (from + i) % g.planes();
      if (expected[stripe.plane_of_rank(rank).value] < expected[stripe.plane_of_rank(best).value]) best = rank;
    }
    REQUIRE(load.least_from(from) == best);
    REQUIRE(load.of(stripe.plane_of_rank(best)).ps == expected[stripe.plane_of_rank(best).value]);
  }
}

TEST_CASE("pages go around a plane with work, and follow the stripe order among planes without") {
  const FlashGeometry g = geometry(2, 2, 1);
  test::BlockDrive drive(g, {.block_namespace = 12, .kv_namespace = 0}, DataMode::timing);
  PlaneLoad load(g, kChannelDiePlane, kTimes, false);
  drive.ftl.place_by(load);
  const Bytes page = g.page_size;
  const auto plane_of_write = [&](std::uint64_t logical) {
    const IoPlan plan = drive.ftl.write(page * logical, page);
    REQUIRE(plan.phases.size() == 1);
    drive.run(plan);
    return g.plane_of(plan.phases.front().front().ppa);
  };
  const Stripe stripe(g, kChannelDiePlane);
  // A plan's own operations count only when its caller adds them: these writes are done at once.
  for (std::uint32_t i = 0; i < 6; ++i) CHECK(plane_of_write(i) == stripe.plane_at(i));
  const PlaneId busy = stripe.plane_at(7);
  load.add(busy, kTimes.erase);
  for (std::uint32_t i = 6; i < 12; ++i) CHECK(plane_of_write(i) != busy);
  load.remove(busy, kTimes.erase);
  // The pages of one request are on different planes while these are alike.
  const IoPlan plan = drive.ftl.write(page * 12, page * 4);
  drive.run(plan);
  std::set<std::uint32_t> planes;
  for (const PageOp& op : plan.phases.front()) planes.insert(g.plane_of(op.ppa).value);
  CHECK(planes.size() == 4);
  for (std::uint32_t p = 0; p < g.planes(); ++p) CHECK(load.of(PlaneId{p}) == SimTime{});
}

TEST_CASE("what a partial write keeps is read before it is planned, and again if it has changed since") {
  const FlashGeometry g = geometry(2, 1, 1);
  test::BlockDrive drive(g, {.block_namespace = 12, .kv_namespace = 0}, DataMode::timing);
  const Bytes page = g.page_size, half{page.value / 2};
  drive.run(drive.ftl.write(Bytes{}, page * 3));
  CHECK(drive.ftl.keep(Bytes{}, page * 2).reads.empty());
  // From the middle of a page to the middle of the next but one: the ends are read, the middle is not.
  const KeptPages kept = drive.ftl.keep(half, page * 2);
  REQUIRE(kept.reads.size() == 2);
  CHECK(kept.reads[0].ppa == drive.ftl.lookup(LogicalPage{0}));
  CHECK(kept.reads[1].ppa == drive.ftl.lookup(LogicalPage{2}));
  CHECK(kept.reads[0].channel_bytes == page.value);
  CHECK(drive.ftl.stats().merge_reads == 2);
  // Meanwhile, another command writes the last of them.
  drive.run(drive.ftl.write(page * 2, page));
  const PhysicalPageAddress written = drive.ftl.lookup(LogicalPage{2});
  const IoPlan plan = drive.ftl.write(half, page * 2, {}, &kept);
  REQUIRE(plan.phases.size() == 2);
  REQUIRE(plan.phases[0].size() == 1);
  CHECK(plan.phases[0][0].kind == PageOpKind::read);
  CHECK(plan.phases[0][0].ppa == written);
  CHECK(plan.phases[1].size() == 3);
  CHECK(drive.ftl.stats().merge_reads == 3);
  drive.run(plan);
  check_mapping(drive);
}

}  // namespace test_plane_load
