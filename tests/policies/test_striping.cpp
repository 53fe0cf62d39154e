#include <catch2/catch.hpp>
#include <set>

#include "policy_support.h"

namespace test_striping {

using namespace csdsim;
using namespace csdsim::ftl;
using namespace csdsim::ftl::test;

namespace {

/// Where InstInfer's placement puts a page, written down independently for windows of one length.
PlaneId striped(const FlashGeometry& g, const KvPageId& page, const KvShape& shape, const KvLayout& layout) {
  const std::uint64_t channels = g.channels;
  const std::uint64_t base =
      std::uint64_t{page.key.sequence.value} * shape.kv_heads + page.key.head.value + page.key.layer.value;
  std::uint64_t position = page.group, channel = base;
  const std::uint64_t apart = std::max<std::uint64_t>(1, g.planes_per_channel() / channels);
  std::uint64_t row = base / channels + base % channels * apart;
  if (page.kind == PageKind::token_v) {
    channel += channels / 2;
    row += g.planes_per_channel() / 2;
  } else if (page.kind == PageKind::embedding) {
    position += std::uint64_t{page.window} * layout.embedding_pages();
    if (layout.embedding_pages() % channels == 0) channel += page.window;
  }
  channel = (channel + position) % channels;
  row += position / channels;
  return g.plane(ChannelId{static_cast<std::uint32_t>(channel)}, static_cast<std::uint32_t>(row % g.dies_per_channel),
                 static_cast<std::uint32_t>(row / g.dies_per_channel % g.planes_per_die));
}

}  // namespace

TEST_CASE("instinfer places page for page by its closed form") {
  for (const std::uint32_t channels : {1u, 3u, 4u, 8u}) {
    for (const std::uint32_t m : {1u, 8u, 64u}) {
      Placing p("instinfer", {channels, 4, 2, 8, 8, Bytes::kib(4)}, {3, 5, 64, 0}, {.embedding_group = m});
      for (std::uint32_t i = 0; i < 2000; ++i) {
        const HeadKey key = key_of(i % 7, i % 3, i % 5);
        for (const PageKind kind : {PageKind::token_k, PageKind::token_v, PageKind::embedding}) {
          const bool embedding = kind == PageKind::embedding;
          const KvPageId page{key, kind, embedding ? i % p.layout.embedding_pages() : i, embedding ? i / 7 : 0};
          REQUIRE(p.plane(page) == striped(p.geometry, page, p.shape, p.layout));
        }
      }
    }
  }
}

TEST_CASE("any prefix of a head's pages loads the channels evenly, neighbours lie apart") {
  for (const char* const name : {"instinfer", "channel-balanced", "sequence-block"}) {
    for (const std::uint32_t channels : {1u, 2u, 3u, 4u, 5u, 8u, 16u}) {
      for (const std::uint32_t m : {1u, 2u, 4u, 16u}) {
        Placing p(name, {channels, 4, 2, 8, 8, Bytes::kib(4)}, {4, 6, 64, 0}, {.embedding_group = m});
        for (const std::uint32_t h : {0u, 1u, 5u}) {
          const HeadKey key = key_of(3, 2, h);
          for (const PageKind kind : {PageKind::token_k, PageKind::token_v}) {
            std::vector<std::uint32_t> load(channels);
            for (std::uint32_t gt = 0; gt < 100; ++gt) {
              ++load[p.channel({key, kind, gt, 0})];
              REQUIRE(imbalance(load) <= 1);
              if (channels > 1) REQUIRE(p.channel({key, kind, gt, 0}) != p.channel({key, kind, gt + 1, 0}));
            }
          }
          std::vector<std::uint32_t> load(channels);
          for (std::uint32_t w = 0; w < 7; ++w) {
            for (std::uint32_t ge = 0; ge < p.layout.embedding_pages(); ++ge) {
              CAPTURE(name, channels, m, w, ge);
              const std::uint32_t at = p.channel({key, PageKind::embedding, ge, w});
              ++load[at];
              REQUIRE(imbalance(load) <= 1);
              if (channels == 1) continue;
              if (ge > 0) REQUIRE(at != p.channel({key, PageKind::embedding, ge - 1, w}));
              if (w > 0) REQUIRE(at != p.channel({key, PageKind::embedding, ge, w - 1}));
            }
          }
          if (channels == 1) continue;
          for (std::uint32_t gt = 0; gt < 100; ++gt) {
            CHECK(p.channel({key, PageKind::token_k, gt, 0}) != p.channel({key, PageKind::token_v, gt, 0}));
          }
        }
      }
    }
  }
}

TEST_CASE("windows that get longer stay striped within two pages") {
  for (const std::uint32_t channels : {1u, 2u, 3u, 4u, 6u, 8u, 16u}) {
    Placing p("instinfer", {channels, 4, 2, 8, 8, Bytes::kib(4)}, {4, 6, 64, 0}, {.adaptive = true});
    REQUIRE(p.layout.doublings > 1);
    std::vector<std::uint32_t> load(channels);
    for (std::uint32_t w = 0; w < 30; ++w) {
      const KvWindow window = p.layout.window(w);
      for (std::uint32_t ge = 0; ge < p.layout.embedding_pages(window); ++ge) {
        ++load[p.channel({key_of(1, 2, 3), PageKind::embedding, ge, w})];
        CAPTURE(channels, w, ge);
        REQUIRE(imbalance(load) <= 2);
      }
    }
  }
}

TEST_CASE("a head's groups visit every plane before one twice, and a flush of all heads covers the channels") {
  Placing p("instinfer", {8, 8, 4, 8, 8, Bytes::kib(4)}, {1, 40, 128, 0}, {.embedding_group = 2});
  std::set<PlaneId> planes;
  for (std::uint32_t gt = 0; gt < p.geometry.planes(); ++gt) {
    planes.insert(p.plane({key_of(1, 0, 7), PageKind::token_k, gt, 0}));
  }
  CHECK(planes.size() == p.geometry.planes());
  std::vector<std::uint32_t> load(8), plane_load(p.geometry.planes());
  for (std::uint32_t s = 0; s < 64; ++s) {
    for (std::uint32_t h = 0; h < 40; ++h) {
      for (const PageKind kind : {PageKind::token_k, PageKind::token_v}) {
        const PlaneId plane = p.plane({key_of(s, 0, h), kind, 77, 0});
        ++load[p.geometry.channel_of(plane).value];
        ++plane_load[plane.value];
      }
    }
  }
  CHECK(imbalance(load) == 0);
  CHECK(imbalance(plane_load) <= 2);
}

TEST_CASE("paired pages are on the channels of the K pages of instinfer") {
  Placing paired("paired", {8, 4, 2, 8, 8, Bytes::kib(4)}, {2, 6, 64, 0});
  Placing instinfer("instinfer", {8, 4, 2, 8, 8, Bytes::kib(4)}, {2, 6, 64, 0});
  for (std::uint32_t gt = 0; gt < 100; ++gt) {
    const HeadKey key = key_of(gt % 3, gt % 2, gt % 6);
    CHECK(paired.channel({key, PageKind::token_kv, gt, 0}) == instinfer.channel({key, PageKind::token_k, gt, 0}));
  }
}

TEST_CASE(
    "token-striped: position i on channel i mod channels, the same for all heads; K and V half the planes apart") {
  const FlashGeometry g{4, 3, 2, 8, 8, Bytes::kib(4)};
  Placing p("token-striped", g, {2, 6, 64, 0}, {.embedding_group = 4});
  const std::uint32_t pages = p.layout.embedding_pages();  // 16
  for (std::uint32_t i = 0; i < 200; ++i) {
    const HeadKey key = key_of(i % 5, i % 2, i % 6);
    const std::uint32_t row = i / 4;
    CHECK(p.plane({key, PageKind::token_k, i, 0}) == g.plane(ChannelId{i % 4}, row % 3, row / 3 % 2));
    CHECK(p.plane({key, PageKind::token_v, i, 0}) == g.plane(ChannelId{i % 4}, (row + 3) % 3, (row + 3) / 3 % 2));
    CHECK(p.plane({key, PageKind::embedding, i % pages, i / pages}) == p.plane({key, PageKind::token_k, i, 0}));
  }
}

TEST_CASE("head-per-channel: a head has one channel and goes round its planes") {
  const FlashGeometry g{4, 3, 2, 8, 8, Bytes::kib(4)};
  Placing p("head-per-channel", g, {2, 6, 64, 0}, {.embedding_group = 4});
  for (std::uint32_t h = 0; h < 6; ++h) {
    for (const PageKind kind : {PageKind::token_k, PageKind::token_v}) {
      std::set<PlaneId> planes;
      for (std::uint32_t gt = 0; gt < 6; ++gt) {
        CHECK(p.channel({key_of(2, 1, h), kind, gt, 0}) == h % 4);
        planes.insert(p.plane({key_of(2, 1, h), kind, gt, 0}));
      }
      CHECK(planes.size() == 6);  // dies x planes of the channel
    }
    for (std::uint32_t w = 0; w < 3; ++w) CHECK(p.channel({key_of(2, 1, h), PageKind::embedding, 7, w}) == h % 4);
    CHECK(p.plane({key_of(2, 1, h), PageKind::token_k, 5, 0}) != p.plane({key_of(2, 1, h), PageKind::token_v, 5, 0}));
  }
}

TEST_CASE("page-l2p: pages go to the planes in turn, whatever they hold, channels first") {
  const FlashGeometry g{4, 3, 2, 8, 8, Bytes::kib(4)};
  Placing p("page-l2p", g, {2, 6, 64, 0});
  for (std::uint32_t i = 0; i < 100; ++i) {
    const KvPageId page{key_of(i % 3, i % 2, 0), i % 2 ? PageKind::token_k : PageKind::token_v, i * 7, 0};
    CHECK(p.plane(page) == g.plane(ChannelId{i % 4}, i / 4 % 3, i / 12 % 2));
  }
  // After a power loss the turn goes on behind the pages that were found.
  Placing again("page-l2p", g, {2, 6, 64, 0});
  for (std::uint32_t i = 0; i < 5; ++i) again.policy->page_restored({}, again.info(), {i});
  CHECK(again.channel({key_of(0, 0, 0), PageKind::token_k, 0, 0}) == 1);
}

}  // namespace test_striping
