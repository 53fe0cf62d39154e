#include <catch2/catch.hpp>
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
  for (std::uint64_t pages = 0; pages <= 32; ++pages) {
    BlockManager filled(g, {8, 0});
    BlockManager single(g, {8, 0});
    filled.allocate(PlaneId{1}, Stream::gc);
    single.allocate(PlaneId{1}, Stream::gc);
    filled.fill(PlaneId{0}, Stream::host, pages);
    for (std::uint64_t i = 0; i < pages; ++i) single.allocate(PlaneId{0}, Stream::host);
    CHECK(filled.available_pages(Namespace::block) == single.available_pages(Namespace::block));
    CHECK(filled.open_pages(PlaneId{0}, Stream::host) == single.open_pages(PlaneId{0}, Stream::host));
    for (std::uint32_t b = 0; b < 16; ++b) {
      CHECK(filled.state(BlockId{b}) == single.state(BlockId{b}));
      CHECK(filled.valid_pages(BlockId{b}) == single.valid_pages(BlockId{b}));
      CHECK(filled.written_pages(BlockId{b}) == single.written_pages(BlockId{b}));
    }
    CHECK(filled.allocate(PlaneId{0}, Stream::host) == single.allocate(PlaneId{0}, Stream::host));
  }
  BlockManager blocks(g, {8, 0});
  CHECK_THROWS_AS(blocks.fill(PlaneId{0}, Stream::host, 33), InternalError);
}

}  // namespace test_block_manager
