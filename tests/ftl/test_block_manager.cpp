#include <catch2/catch.hpp>

#include <algorithm>
#include <ranges>
#include <set>

#include "base/error.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/stripe.h"

namespace test_block_manager {

using namespace csdsim;
using namespace csdsim::ftl;

TEST_CASE("a stripe visits every plane once, its first level fastest") {
  const FlashGeometry g{3, 2, 4, 1, 1, Bytes{512}};
  std::array order{StripeLevel::channel, StripeLevel::die, StripeLevel::plane};
  std::ranges::sort(order);
  do {
    const Stripe stripe(g, order);
    std::set<PlaneId> seen;
    for (std::uint32_t rank = 0; rank < g.planes(); ++rank) {
      seen.insert(stripe.plane_at(rank));
      CHECK(stripe.rank_of(stripe.plane_at(rank)) == rank);
      CHECK(stripe.plane_at(rank + g.planes()) == stripe.plane_at(rank));
    }
    CHECK(seen.size() == g.planes());
  } while (std::ranges::next_permutation(order).found);
  const Stripe stripe(g, kChannelDiePlane);
  CHECK(stripe.plane_at(1) == g.plane(ChannelId{1}, 0, 0));
  CHECK(stripe.plane_at(3) == g.plane(ChannelId{0}, 1, 0));
  CHECK(stripe.plane_at(6) == g.plane(ChannelId{0}, 0, 1));
  CHECK_THROWS_AS(Stripe(g, {StripeLevel::die, StripeLevel::die, StripeLevel::plane}), UserError);
}

TEST_CASE("blocks go from free over open, full and erasing to free") {
  const FlashGeometry g{1, 1, 1, 4, 2, Bytes{512}};
  BlockManager blocks(g, {2, 2});
  const PlaneId plane{0};
  CHECK(blocks.available_pages(Namespace::kv) == 4);
  CHECK(blocks.state(BlockId{0}) == BlockState::free);
  CHECK(blocks.allocate(plane, Stream::kv) == PhysicalPageAddress{0});
  CHECK(blocks.state(BlockId{0}) == BlockState::open);
  CHECK(blocks.allocate(plane, Stream::host) == PhysicalPageAddress{2});
  CHECK(blocks.open_pages(plane, Stream::kv) == 1);
  CHECK(blocks.allocate(plane, Stream::kv) == PhysicalPageAddress{1});
  CHECK(blocks.state(BlockId{0}) == BlockState::full);
  CHECK(blocks.available_blocks(plane, Namespace::kv) == 1);
  CHECK_FALSE(blocks.invalidate({0}));
  CHECK(blocks.victim(plane, Namespace::kv) == BlockId{0});
  CHECK_FALSE(blocks.victim(plane, Namespace::block).has_value());
  CHECK_THROWS_AS(blocks.begin_erase(BlockId{0}), InternalError);
  CHECK(blocks.invalidate({1}));
  CHECK_THROWS_AS(blocks.invalidate({1}), InternalError);
  blocks.begin_erase(BlockId{0});
  CHECK(blocks.state(BlockId{0}) == BlockState::erasing);
  CHECK(blocks.available_pages(Namespace::kv) == 2);
  CHECK(blocks.erasing_pages(Namespace::kv) == 2);
  blocks.finish_erase(BlockId{0});
  CHECK_THROWS_AS(blocks.finish_erase(BlockId{0}), InternalError);
  CHECK(blocks.state(BlockId{0}) == BlockState::free);
  CHECK(blocks.erase_count(BlockId{0}) == 1);
  CHECK(blocks.available_pages(Namespace::kv) == 4);
  // Untouched blocks come before recycled ones.
  CHECK(blocks.allocate(plane, Stream::kv) == PhysicalPageAddress{4});
}

TEST_CASE("a namespace stops at its quota, an open block with no valid page is not erasable") {
  const FlashGeometry g{1, 1, 1, 4, 2, Bytes{512}};
  CHECK_THROWS_AS(BlockManager(g, {3, 2}), UserError);
  BlockManager blocks(g, {1, 3});
  CHECK(blocks.allocate(PlaneId{0}, Stream::host));
  CHECK_FALSE(blocks.allocate(PlaneId{0}, Stream::gc));
  CHECK_FALSE(blocks.invalidate({0}));
  CHECK(blocks.allocate(PlaneId{0}, Stream::host));
  CHECK_FALSE(blocks.allocate(PlaneId{0}, Stream::host));
  for (int i = 0; i < 6; ++i) CHECK(blocks.allocate(PlaneId{0}, Stream::kv));
  CHECK_FALSE(blocks.allocate(PlaneId{0}, Stream::kv));
  CHECK(blocks.available_pages(Namespace::kv) == 0);
}

TEST_CASE("a namespace loses the pages of a block that fails without a spare one") {
  const FlashGeometry g{1, 1, 2, 5, 4, Bytes{512}};
  BlockManager blocks(g, {2, 2}, {.spare_blocks = 1});
  CHECK(blocks.total_pages(Namespace::kv) == 16);
  const auto fail = [&](PlaneId plane) {
    const auto page = blocks.allocate(plane, Stream::kv);
    REQUIRE(page);
    blocks.invalidate(*page);
    blocks.retire(BlockId{static_cast<std::uint32_t>(page->value / 4)});
  };
  fail(PlaneId{0});  // the spare block of the plane replaces it
  CHECK_FALSE(blocks.read_only());
  CHECK(blocks.total_pages(Namespace::kv) == 16);
  fail(PlaneId{0});
  CHECK(blocks.read_only());
  CHECK(blocks.total_pages(Namespace::kv) == 12);
  CHECK(blocks.total_pages(Namespace::block) == 16);
}

TEST_CASE("fill leaves the state of as many single allocations") {
  const FlashGeometry g{1, 1, 2, 8, 4, Bytes{512}};
  constexpr PlaneId kPlane{0}, kOther{1};
  for (const GcPolicy policy : {GcPolicy::greedy, GcPolicy::cost_benefit, GcPolicy::random_greedy, GcPolicy::fifo})
    for (std::uint64_t pages = 0; pages <= 32; ++pages)
      for (std::uint32_t erased = 0; erased < 2; ++erased) {
        CAPTURE(static_cast<int>(policy), pages, erased);
        const BlockManagerConfig config{.gc = {.kind = policy, .choices = 2}};
        BlockManager filled(g, {8, 0}, config);
        BlockManager single(g, {8, 0}, config);
        for (BlockManager* blocks : {&filled, &single}) {
          const PhysicalPageAddress lost = *blocks->allocate(kOther, Stream::gc);
          blocks->close(blocks->block_of(lost));
          blocks->invalidate(lost);
          if (erased == 0) continue;
          const PhysicalPageAddress used = *blocks->allocate(kPlane, Stream::gc);
          blocks->close(blocks->block_of(used));
          blocks->invalidate(used);
          blocks->begin_erase(blocks->block_of(used));
          blocks->finish_erase(blocks->block_of(used));
        }
        // What takes the most worn block begins with the one that was erased.
        const Stream stream = pages % 2 == 0 ? Stream::host : Stream::cold;
        filled.fill(kPlane, stream, pages);
        for (std::uint64_t i = 0; i < pages; ++i) single.allocate(kPlane, stream);
        CHECK(filled.available_pages(Namespace::block) == single.available_pages(Namespace::block));
        CHECK(filled.available_blocks(kPlane, Namespace::block) == single.available_blocks(kPlane, Namespace::block));
        CHECK(filled.valid_pages(Namespace::block) == single.valid_pages(Namespace::block));
        CHECK(filled.open_pages(kPlane, stream) == single.open_pages(kPlane, stream));
        CHECK(filled.records() == single.records());
        CHECK(filled.pristine(kPlane) == single.pristine(kPlane));
        // The pages that were handed out are a time, also of other planes.
        CHECK(filled.settled_gain(kOther, Namespace::block, 9) == single.settled_gain(kOther, Namespace::block, 9));
        for (std::uint32_t b = 0; b < 16; ++b) CHECK(filled.valid_pages(BlockId{b}) == single.valid_pages(BlockId{b}));
        CHECK(filled.allocate(kPlane, stream) == single.allocate(kPlane, stream));
        // Victims, one after the other, as pages go.
        for (std::uint32_t i = 0; i < 8; ++i) {
          const PhysicalPageAddress page{(i * 5 % 8) * 4 + 1};
          if (filled.valid(page)) CHECK(filled.invalidate(page) == single.invalidate(page));
          CHECK(filled.victim(kPlane, Namespace::block) == single.victim(kPlane, Namespace::block));
          CHECK(filled.settled_gain(kPlane, Namespace::block, 9) == single.settled_gain(kPlane, Namespace::block, 9));
        }
      }
  BlockManager blocks(g, {8, 0});
  CHECK_THROWS_AS(blocks.fill(kPlane, Stream::host, 33), InternalError);
  BlockManager bad(g, {6, 0}, {.spare_blocks = 2, .factory_bad_blocks = 0.1, .seed = 3});
  REQUIRE(bad.factory_bad_blocks() > 0);
  bad.fill(kPlane, Stream::host, 24);
  CHECK(bad.factory_bad_blocks() ==
        static_cast<std::uint64_t>(std::ranges::count_if(
            std::views::iota(0U, 16U), [&](auto b) { return bad.state(BlockId{b}) == BlockState::bad; })));
}

}  // namespace test_block_manager
