#include <catch2/catch.hpp>
#include <random>

#include "policy_support.h"

namespace test_channel_balanced {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

const FlashGeometry kFlash{4, 4, 2, 64, 64, Bytes::kib(4)};
const KvShape kShape{2, 4, 64, 1024};

KvPageId page(std::uint32_t i) { return {key_of(i % 3, i % 2, i % 4), PageKind::token_k, i / 4, 0}; }

}  // namespace

TEST_CASE("with even loads channel-balanced is instinfer") {
  Placing balanced("channel-balanced", kFlash, kShape), instinfer("instinfer", kFlash, kShape);
  std::ranges::fill(balanced.flash.reads, 5000.0);
  std::ranges::fill(balanced.flash.valid, 7000);
  for (std::uint32_t i = 0; i < 500; ++i) REQUIRE(balanced.plane(page(i)) == instinfer.plane(page(i)));
}

TEST_CASE("a page leaves a channel that bears more than its share, for the one that bears least") {
  Placing p("channel-balanced", kFlash, kShape), instinfer("instinfer", kFlash, kShape);
  const auto check = [&](std::uint32_t loaded, std::uint32_t least) {
    std::uint32_t moved = 0;
    for (std::uint32_t i = 0; i < 200; ++i) {
      const std::uint32_t wanted = instinfer.channel(page(i));
      const std::uint32_t got = p.channel(page(i));
      CHECK(got == (wanted == loaded ? least : wanted));
      moved += wanted == loaded;
    }
    CHECK(moved == 50);
  };
  p.flash.reads = {4000, 9000, 4000, 3900};
  check(1, 3);
  p.flash.reads = {0, 0, 0, 0};
  p.flash.valid = {90'000, 49'000, 50'000, 50'000};
  check(0, 1);
}

TEST_CASE("the slack is where a channel begins to bear too much, and few reads decide nothing") {
  // Loads are shares of reads and of pages, 256 of each assumed: with x more reads on channel 0 of 4, its share is
  // (256 + x) / (1024 + x) + 1/4 against 2/4 (1 + slack); for a slack of 1/8 that is x = 1024 / 11 = 93.1.
  for (const auto& [slack, reads, moves] : {std::tuple{"1/8", 93.0, false}, std::tuple{"1/8", 94.0, true},
                                            std::tuple{"1/2", 94.0, false}, std::tuple{"0", 1.0, true}}) {
    Placing p("channel-balanced", kFlash, kShape, {}, {{"slack", slack}});
    p.flash.reads[0] = reads;
    const KvPageId on_first{key_of(0, 0, 0), PageKind::token_k, 0, 0};
    CAPTURE(slack, reads);
    CHECK((p.channel(on_first) != 0) == moves);
  }
}

TEST_CASE("what is kept unevenly becomes even again") {
  Placing p("channel-balanced", kFlash, kShape);
  p.flash.valid = {40'000, 10'000, 10'000, 10'000};
  for (std::uint32_t i = 0; i < 100'000; ++i) ++p.flash.valid[p.channel(page(i))];
  const double mean = 170'000.0 / 4;
  for (const std::uint64_t valid : p.flash.valid) CHECK(double(valid) < 1.26 * mean);  // the slack, of two shares
}

}  // namespace test_channel_balanced
