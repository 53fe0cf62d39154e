#include <catch2/catch.hpp>
#include <set>

#include "ftl/core/kv_placement.h"

using namespace csdsim;
using namespace csdsim::ftl;

namespace {

std::uint32_t imbalance(const std::vector<std::uint32_t>& load) {
  const auto [least, most] = std::ranges::minmax(load);
  return most - least;
}

}  // namespace

TEST_CASE("any prefix of a head's pages loads the channels evenly, neighbours lie apart") {
  for (const std::uint32_t channels : {1u, 2u, 3u, 4u, 5u, 8u, 16u}) {
    for (const std::uint32_t m : {1u, 2u, 4u, 16u}) {
      const FlashGeometry g{channels, 4, 2, 8, 8, Bytes::kib(4)};
      const KvLayout l = KvLayout::make(g.page_size, 64, m, 0);
      const KvShape shape{4, 6, 64, 0};
      StripedPlacement placement(g);
      for (const std::uint32_t h : {0u, 1u, 5u}) {
        const KvKey key{SequenceId{3}, LayerId{2}, KvHead{h}};
        const auto channel = [&](PageKind kind, std::uint32_t group, std::uint32_t window) {
          return g.channel_of(placement.place({key, kind, group, window}, shape, l)).value;
        };
        for (const PageKind kind : {PageKind::token_k, PageKind::token_v}) {
          std::vector<std::uint32_t> load(channels);
          for (std::uint32_t gt = 0; gt < 100; ++gt) {
            ++load[channel(kind, gt, 0)];
            REQUIRE(imbalance(load) <= 1);
            if (channels > 1) REQUIRE(channel(kind, gt, 0) != channel(kind, gt + 1, 0));
          }
        }
        std::vector<std::uint32_t> load(channels);
        for (std::uint32_t w = 0; w < 7; ++w) {
          for (std::uint32_t ge = 0; ge < l.embedding_pages(); ++ge) {
            CAPTURE(channels, m, w, ge);
            ++load[channel(PageKind::embedding, ge, w)];
            REQUIRE(imbalance(load) <= 1);
            if (channels == 1) continue;
            if (ge > 0) REQUIRE(channel(PageKind::embedding, ge, w) != channel(PageKind::embedding, ge - 1, w));
            if (w > 0) REQUIRE(channel(PageKind::embedding, ge, w) != channel(PageKind::embedding, ge, w - 1));
          }
        }
        if (channels == 1) continue;
        for (std::uint32_t gt = 0; gt < 100; ++gt) {
          CHECK(channel(PageKind::token_k, gt, 0) != channel(PageKind::token_v, gt, 0));
        }
      }
    }
  }
}

TEST_CASE("a head's groups visit every plane before one twice, and a flush of all heads covers the channels") {
  const FlashGeometry g{8, 8, 4, 8, 8, Bytes::kib(4)};
  const KvLayout l = KvLayout::make(g.page_size, 128, 2, 0);
  const KvShape shape{1, 40, 128, 0};
  StripedPlacement placement(g);
  std::set<PlaneId> planes;
  for (std::uint32_t gt = 0; gt < g.planes(); ++gt) {
    planes.insert(placement.place({{SequenceId{1}, LayerId{0}, KvHead{7}}, PageKind::token_k, gt, 0}, shape, l));
  }
  CHECK(planes.size() == g.planes());
  std::vector<std::uint32_t> load(8);
  std::vector<std::uint32_t> plane_load(g.planes());
  for (std::uint32_t s = 0; s < 64; ++s) {
    for (std::uint32_t h = 0; h < 40; ++h) {
      for (const PageKind kind : {PageKind::token_k, PageKind::token_v}) {
        const PlaneId p = placement.place({{SequenceId{s}, LayerId{0}, KvHead{h}}, kind, 77, 0}, shape, l);
        ++load[g.channel_of(p).value];
        ++plane_load[p.value];
      }
    }
  }
  CHECK(imbalance(load) == 0);
  CHECK(imbalance(plane_load) <= 2);
}
