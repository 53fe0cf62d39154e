#include <catch2/catch.hpp>
#include <set>

#include "policy_support.h"

namespace test_sequence_block {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

const FlashGeometry kFlash{4, 4, 2, 64, 64, Bytes::kib(4)};

/// Planes that the pages of 1,000 groups go to.
std::set<PlaneId> planes_of(Placing& p, std::uint32_t sequence) {
  std::set<PlaneId> planes;
  for (std::uint32_t gt = 0; gt < 1000; ++gt) {
    for (const PageKind kind : {PageKind::token_k, PageKind::token_v})
      planes.insert(p.plane({key_of(sequence, gt % 2, gt % 4), kind, gt, 0}));
  }
  return planes;
}

}  // namespace

TEST_CASE("each sequence has an append point of its own, for moves too, until it is freed") {
  Placing p("sequence-block", kFlash, {2, 4, 64, 1024});
  const auto place = [&](std::uint32_t sequence, std::uint32_t gt) {
    const PhysicalPageAddress at =
        p.policy->place({key_of(sequence, 0, 0), PageKind::token_k, gt, 0}, p.info(sequence), p.flash);
    return std::pair{at, p.flash.points.back()};
  };
  const auto [first, point] = place(7, 0);
  CHECK(point >= kFirstOwnPoint);
  CHECK(place(7, 1).second == point);
  const AppendPoint other = place(9, 0).second;
  CHECK(other >= kFirstOwnPoint);
  CHECK(other != point);

  const PhysicalPageAddress moved =
      p.policy->move({key_of(7, 0, 0), PageKind::token_k, 0, 0}, p.info(7), first, p.flash);
  CHECK(kFlash.plane_of(moved) == kFlash.plane_of(first));
  CHECK(p.flash.points.back() == point);

  CHECK(p.flash.closed.empty());
  p.policy->sequence_freed(p.info(7), p.flash);
  CHECK(p.flash.closed == std::vector{point});
  CHECK(place(9, 1).second == other);
  CHECK(place(11, 0).second == point);             // the number is used again
  CHECK(place(7, 0).second > point);               // the sequence may come back
  p.policy->sequence_freed(p.info(100), p.flash);  // had no page
  CHECK(p.flash.closed.size() == 1);
}

TEST_CASE("a sequence spreads over all channels and no more planes than its blocks need") {
  // A block of each of four channels is 256 pages.
  const auto planes = [](std::uint32_t tokens) {
    Placing p("sequence-block", kFlash, {1, 1, 64, tokens, false});
    return std::pair{p.layout.pages(tokens).total(), planes_of(p, 0).size()};
  };
  CHECK(planes(32 * 128) == std::pair{std::uint64_t{256}, std::size_t{4}});
  CHECK(planes(32 * 129) == std::pair{std::uint64_t{258}, std::size_t{8}});
  CHECK(planes(32 * 128 * 8).second == 32);
  CHECK(planes(32 * 128 * 100).second == 32);
  CHECK(planes(1).second == 4);
  Placing layers("sequence-block", kFlash, {2, 1, 64, 32 * 128, false});
  CHECK(planes_of(layers, 0).size() == 8);

  // Sequences begin where others do not.
  Placing p("sequence-block", kFlash, {1, 1, 64, 1024, false});
  const std::set<PlaneId> first = planes_of(p, 0);
  for (const PlaneId plane : planes_of(p, 1)) CHECK_FALSE(first.contains(plane));
}

}  // namespace test_sequence_block
