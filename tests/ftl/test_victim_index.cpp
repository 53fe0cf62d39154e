#include <catch2/catch.hpp>
#include <map>
#include <random>

#include "ftl/core/block_manager.h"

namespace test_victim_index {

using namespace csdsim;
using namespace csdsim::ftl;

namespace {

constexpr PlaneId kPlane{0};

BlockManager full_plane(const FlashGeometry& g, const VictimPolicy& policy) {
  BlockManager blocks(g, {g.blocks_per_plane, 0}, {.gc = policy});
  blocks.fill(kPlane, Stream::host, g.pages_per_plane());
  return blocks;
}

}  // namespace

TEST_CASE("the greedy victim has the fewest valid pages, the one that has had them longest in a tie") {
  BlockManager blocks = full_plane({1, 1, 1, 4, 4, Bytes{512}}, {});
  CHECK_FALSE(blocks.victim(kPlane, Namespace::block).has_value());
  blocks.invalidate({13});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{3});
  blocks.invalidate({6});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{3});
  blocks.invalidate({9});
  blocks.invalidate({8});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{2});
  blocks.begin_collect(BlockId{2});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{3});
}

TEST_CASE("greedy victims against a scan of all blocks, while pages die and blocks are collected and refilled") {
  const FlashGeometry g{1, 2, 1, 24, 8, Bytes{512}};
  for (std::uint64_t seed = 1; seed <= 5; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 rng(seed);
    BlockManager blocks(g, {16, 8});
    const auto fewest = [&](PlaneId plane, Namespace ns) {
      std::uint32_t least = g.pages_per_block;
      for (std::uint32_t b = 0; b < g.blocks(); ++b) {
        if (blocks.plane_of(BlockId{b}) != plane || blocks.state(BlockId{b}) != BlockState::full) continue;
        if (blocks.namespace_of_block(BlockId{b}) == ns) least = std::min(least, blocks.valid_pages(BlockId{b}));
      }
      return least;
    };
    for (int step = 0; step < 20'000; ++step) {
      const PlaneId plane{static_cast<std::uint32_t>(rng() % 2)};
      const bool kv = rng() % 3 == 0;
      const Namespace ns = kv ? Namespace::kv : Namespace::block;
      if (!blocks.allocate(plane, kv ? Stream::kv : Stream::host)) {
        const std::optional<BlockId> victim = blocks.victim(plane, ns);
        const std::uint32_t least = fewest(plane, ns);
        REQUIRE(victim.has_value() == (least < g.pages_per_block));
        if (victim) {
          REQUIRE(blocks.valid_pages(*victim) == least);
          while (const auto page = blocks.next_valid(*victim, 0)) {
            blocks.invalidate({blocks.first_page(*victim).value + *page});
          }
          blocks.begin_erase(*victim);
          blocks.finish_erase(*victim);
        }
      }
      const PhysicalPageAddress ppa{rng() % g.pages()};
      if (blocks.valid(ppa)) blocks.invalidate(ppa);
    }
  }
}

TEST_CASE("cost-benefit weighs age against valid pages") {
  // Block 0 lost two pages long ago, block 1 lost three just now: greedy takes 1. Ages 96 and 0 make it 0.
  const FlashGeometry g{1, 1, 1, 32, 4, Bytes{512}};
  for (const GcPolicy policy : {GcPolicy::greedy, GcPolicy::cost_benefit}) {
    BlockManager blocks(g, {32, 0}, {.gc = {.kind = policy}});
    blocks.fill(kPlane, Stream::host, 8);
    blocks.invalidate({0});
    blocks.invalidate({1});
    blocks.fill(kPlane, Stream::host, 96);
    for (const std::uint64_t ppa : {4u, 5u, 6u}) blocks.invalidate({ppa});
    CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{policy == GcPolicy::greedy ? 1u : 0u});
    // 4 pages later: 100 * 2/4 against 4 * 3/2, still block 0. Without valid pages nothing is cheaper.
    blocks.fill(kPlane, Stream::host, 4);
    CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{policy == GcPolicy::greedy ? 1u : 0u});
    blocks.invalidate({7});
    CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{1});
  }
}

TEST_CASE("cost-benefit divides by what is left to move") {
  // Block 0 has three valid pages of four and is 91 old, block 1 has one and is 20 old: 91 / 6 against 20 * 3 / 2.
  const FlashGeometry g{1, 1, 1, 64, 4, Bytes{512}};
  BlockManager blocks(g, {64, 0}, {.gc = {.kind = GcPolicy::cost_benefit}});
  blocks.fill(kPlane, Stream::host, 8);
  blocks.invalidate({0});
  blocks.fill(kPlane, Stream::host, 71);
  for (const std::uint64_t ppa : {4u, 5u, 6u}) blocks.invalidate({ppa});
  blocks.fill(kPlane, Stream::host, 20);
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{1});
}

TEST_CASE("first in, first out takes the block that was filled first and has anything to gain") {
  BlockManager blocks = full_plane({1, 1, 1, 8, 4, Bytes{512}}, {.kind = GcPolicy::fifo});
  blocks.invalidate({20});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{5});
  blocks.invalidate({8});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{2});
  for (const std::uint64_t ppa : {21u, 22u, 23u}) blocks.invalidate({ppa});
  CHECK(blocks.victim(kPlane, Namespace::block) == BlockId{2});
}

TEST_CASE("random-greedy takes the best of d blocks drawn without replacement, each equally often") {
  // One page of block 0 is dead, two of block 1, and so on: the best of the sample is the one with the highest address.
  // Block k of n = 10 is the best of d = 3 with probability C(k, 2) / C(10, 3).
  const FlashGeometry g{1, 1, 1, 10, 16, Bytes{512}};
  const auto prepare = [&](const VictimPolicy& policy) {
    BlockManager blocks = full_plane(g, policy);
    for (std::uint64_t b = 0; b < 10; ++b) {
      for (std::uint64_t i = 0; i <= b; ++i) blocks.invalidate({b * 16 + i});
    }
    return blocks;
  };
  BlockManager blocks = prepare({.kind = GcPolicy::random_greedy, .choices = 3, .seed = 4});
  BlockManager again = prepare({.kind = GcPolicy::random_greedy, .choices = 3, .seed = 4});
  std::map<std::uint32_t, int> taken;
  constexpr int kDraws = 60'000;
  for (int i = 0; i < kDraws; ++i) {
    const BlockId victim = blocks.victim(kPlane, Namespace::block).value();
    REQUIRE(again.victim(kPlane, Namespace::block) == victim);
    ++taken[victim.value];
  }
  for (std::uint32_t k = 0; k < 10; ++k) {
    const double expected = kDraws * (k * (k - 1.0) / 2) / 120;
    CHECK(std::abs(taken[k] - expected) < 5 * std::sqrt(expected + 1));
  }
  BlockManager all = prepare({.kind = GcPolicy::random_greedy, .choices = 10});
  CHECK(all.victim(kPlane, Namespace::block) == BlockId{9});
  BlockManager valid = full_plane(g, {.kind = GcPolicy::random_greedy, .choices = 2});
  CHECK_FALSE(valid.victim(kPlane, Namespace::block).has_value());
  valid.invalidate({77});
  for (int i = 0; i < 20; ++i) CHECK(valid.victim(kPlane, Namespace::block) == BlockId{4});
}

}  // namespace test_victim_index
