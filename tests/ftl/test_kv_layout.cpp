#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <random>

#include "base/error.h"
#include "ftl/kv/kv_layout.h"

namespace test_kv_layout {

using namespace csdsim;
using namespace csdsim::ftl;

TEST_CASE("tokens per page and components per page (docs/algorithms.md, Layouts)") {
  const auto layout = [](std::uint32_t m) { return KvLayout::make(Bytes::kib(4), 128, m, 0); };
  CHECK(layout(2).group_tokens == 16);
  CHECK(layout(1).window_tokens == 2048);
  CHECK(layout(2).window_tokens == 1024);
  CHECK(layout(4).window_tokens == 512);
  CHECK(layout(8).window_tokens == 256);
  CHECK(layout(8).embedding_pages() == 16);
  CHECK(layout(8).window_groups() == 16);
}

TEST_CASE("m is chosen as the largest T within max(256, max_tokens / 2)") {
  const auto window = [](std::uint32_t max_tokens) {
    return KvLayout::make(Bytes::kib(4), 128, 0, max_tokens).window_tokens;
  };
  CHECK(window(0) == 256);
  CHECK(window(256) == 256);
  CHECK(window(1023) == 256);
  CHECK(window(1024) == 512);
  CHECK(window(2048) == 1024);
  CHECK(window(4095) == 1024);
  CHECK(window(4096) == 2048);
  CHECK(window(100'000) == 2048);
  // No m is large enough: the smallest window there is.
  CHECK(KvLayout::make(Bytes::kib(16), 16, 0, 0).window_tokens == 512);
  CHECK(KvLayout::make(Bytes::kib(4), 64, 0, 0).embedding_group == 8);
}

TEST_CASE("shapes that do not fit a page are refused with their numbers") {
  CHECK_THROWS_WITH(KvLayout::make(Bytes{512}, 512, 0, 0),
                    Catch::Contains("512 bytes is smaller than a token row") && Catch::Contains("1024 bytes"));
  CHECK_THROWS_WITH(KvLayout::make(Bytes::kib(4), 128, 3, 0), Catch::Contains("embedding_group is 3"));
  CHECK_THROWS_WITH(KvLayout::make(Bytes::kib(4), 64, 128, 0), Catch::Contains("head dimension 64"));
  CHECK_THROWS_AS(KvLayout::make(Bytes::kib(4), 0, 0, 0), UserError);
}

TEST_CASE("a head dimension that is no power of two: pages that divide by it still work") {
  const KvLayout l = KvLayout::make(Bytes{480}, 24, 0, 0);
  CHECK(l.group_tokens == 10);
  CHECK(l.embedding_group == 1);
  CHECK(l.window_tokens == 240);
  CHECK(l.window_tokens % l.group_tokens == 0);
  CHECK(l.window_groups() == l.embedding_pages());
}

TEST_CASE("heads of 80 and 96 elements: token pages end with empty bytes, windows fill theirs") {
  for (const std::uint32_t d : {80u, 96u}) {
    for (const std::uint64_t kib : {1u, 4u, 16u}) {
      const Bytes page = Bytes::kib(kib);
      CAPTURE(d, kib);
      const KvLayout dense = KvLayout::make(page, d, 0, 2048, false);
      CHECK_NOTHROW(dense.validate());
      CHECK(dense.group_tokens == page.value / (2 * d));
      // A page that is counted holds whole rows: the bytes of all pages are those of the rows and the empty ends.
      const std::uint64_t left = page.value - dense.group_tokens * dense.row().value;
      CHECK(left < dense.row().value);
      CHECK(dense.pages(2048).total() * page.value ==
            2 * (2048 / dense.group_tokens) * (dense.group_tokens * dense.row().value + left));

      const KvLayout both = KvLayout::make(page, d, 0, 2048);
      CHECK_NOTHROW(both.validate());
      CHECK(both.group_tokens == std::bit_floor(dense.group_tokens));
      CHECK(both.window_tokens % both.group_tokens == 0);
      CHECK(std::uint64_t{both.window_tokens} * both.embedding_group * 2 == page.value);
      CHECK(both.embedding_pages() * both.embedding_group == d);
    }
  }
  CHECK(KvLayout::make(Bytes::kib(4), 80, 0, 0, false).group_tokens == 25);
  CHECK(KvLayout::make(Bytes::kib(4), 80, 0, 0).group_tokens == 16);
}

TEST_CASE("page and buffer counts (docs/algorithms.md, Step A to Tail)") {
  const KvLayout l = KvLayout::make(Bytes::kib(4), 128, 2, 0);
  CHECK(l.pages(15) == KvPageCount{0, 0, 0});
  CHECK(l.pages(16) == KvPageCount{1, 1, 0});
  CHECK(l.pages(1023) == KvPageCount{63, 63, 0});
  CHECK(l.pages(1024) == KvPageCount{64, 64, 64});
  CHECK(l.pages(2050) == KvPageCount{128, 128, 128});
  CHECK(l.group_buffer(17) == Bytes{2 * 256});
  CHECK(l.group_buffer(32) == Bytes{0});
  CHECK(l.component_tail(1030) == Bytes{6 * 256});
  // OPT-13B at T = 1024: 419 MB a sequence in the component-major tail alone.
  CHECK(l.component_tail(1023) * (40 * 40) == Bytes{40ull * 40 * 1023 * 256});
  CHECK(l.group_buffer(15) * (40 * 40) == Bytes{40ull * 40 * 15 * 512});
}

TEST_CASE("rows of few bits: more tokens per page, smaller tails") {
  const RowQuantisation four{.bits = 4, .group = 64}, eight{.bits = 8, .group = 32};
  const KvLayout l = KvLayout::make(Bytes::kib(4), 128, 0, 0, false, four);
  l.validate();
  CHECK(l.row() == Bytes{64 + 2 * 2});
  CHECK(l.row_words() == 34);
  CHECK(l.group_tokens == 60);
  CHECK(l.pages(120) == KvPageCount{2, 2, 0});
  CHECK(l.group_buffer(121) == Bytes{2 * 68});
  CHECK(KvLayout::make(Bytes::kib(4), 128, 0, 0, false, eight).group_tokens == 4096 / (128 + 4 * 2));
  CHECK_THROWS_WITH(KvLayout::make(Bytes{64}, 128, 0, 0, false, four),
                    Catch::Contains("128 elements of 4 bits are 68"));
  const RowQuantisation uneven{.bits = 4, .group = 48};
  CHECK_THROWS_WITH(KvLayout::make(Bytes::kib(4), 128, 0, 0, false, uneven).validate(),
                    Catch::Contains("groups of 48 elements do not divide heads of 128"));
}

TEST_CASE("an embedding page has room for the scales of all groups that it may cut, and of no more than a row has") {
  const auto runs = [](std::uint32_t d, std::uint32_t group, std::uint32_t m) {
    KvLayout l;
    l.head_dim = d;
    l.format = {.bits = 4, .group = group};
    return l.scale_runs(m);
  };
  // 32 components that begin with the last one of a group of 24 have it, a whole group and 7 of a third one.
  CHECK(runs(96, 24, 32) == 3);
  // Those that begin with the last one of a group of 12 have it, two whole groups and 7 of a fourth one.
  CHECK(runs(96, 12, 32) == 4);
  CHECK(runs(96, 24, 16) == 2);
  // Wherever 50 components began, they would cut 11 groups of 5 at most; a row of 50 has 10.
  CHECK(runs(50, 5, 50) == 10);
  CHECK(runs(50, 20, 50) == 3);
  CHECK(runs(128, 48, 128) == 3);
  // Groups and pages that divide one another do not cut.
  CHECK(runs(128, 64, 32) == 1);
  CHECK(runs(128, 32, 64) == 2);
}

TEST_CASE("embedding pages of few bits hold scales behind their components") {
  // 8 components of 4 bits and a scale are 6 bytes a token: 682 in a page, of which 660 are groups of 60.
  const KvLayout l = KvLayout::make(Bytes::kib(4), 128, 8, 0, true, {.bits = 4, .group = 64});
  l.validate();
  CHECK(l.group_tokens == 60);
  CHECK(l.window_tokens == 660);
  CHECK(l.embedding_bytes(l.window(0)) == Bytes{660 * 6});
  CHECK(l.pages(1320) == KvPageCount{22, 22, 32});
  CHECK(l.component_tail(1330) == Bytes{10 * 68});
  // 128 components have the scales of both groups: 68 bytes a token, as a row.
  CHECK(KvLayout::make(Bytes::kib(4), 128, 128, 0, true, {.bits = 4, .group = 64}).window_tokens == 60);
  // Chosen by the longest sequence, but not below 4 components of 4 bits or 2 of 8: their scale takes as much.
  CHECK(KvLayout::make(Bytes::kib(4), 128, 0, 0, true, {.bits = 4, .group = 64}).embedding_group == 32);
  CHECK(KvLayout::make(Bytes::kib(4), 128, 0, 2048, true, {.bits = 4, .group = 64}).embedding_group == 4);
  CHECK(KvLayout::make(Bytes::kib(4), 128, 0, 100'000, true, {.bits = 4, .group = 64}).embedding_group == 4);
  CHECK(KvLayout::make(Bytes::kib(4), 128, 0, 100'000, true, {.bits = 8, .group = 64}).embedding_group == 2);
}

TEST_CASE("windows of few bits are whole groups, fit at every length, and would not with another group") {
  std::mt19937_64 rng(16);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t bits = rng() % 2 == 0 ? 4 : 8,
                        d = std::array{16u, 32u, 48u, 64u, 80u, 96u, 128u, 256u}[rng() % 8];
    const std::uint32_t scales = std::array{1u, 2u, 4u, 8u}[rng() % 4];
    const Bytes page{std::uint64_t{512} << rng() % 6};
    const RowQuantisation format{.bits = bits, .group = d / scales};
    const auto longest = static_cast<std::uint32_t>(rng() % 5000);
    const std::uint32_t given = rng() % 2 == 0 ? 0 : 1U << rng() % (std::countr_zero(d) + 1);
    CAPTURE(i, bits, d, scales, page.value, longest, given);
    KvLayout l = KvLayout::make(page, d, given, longest, true, format);
    const std::uint32_t once = l.window_tokens;
    const bool doubles = rng() % 2 == 0;
    if (doubles) l.let_windows_double();
    REQUIRE_NOTHROW(l.validate());
    REQUIRE(l.window_tokens <= once);
    REQUIRE(l.row() * l.group_tokens <= page);
    REQUIRE(l.group_tokens <= l.window_tokens);
    std::uint32_t next = 0;
    bool one_more_fits = true;
    for (std::uint32_t w = 0; w < 40; ++w) {
      const KvWindow window = l.window(w);
      REQUIRE(window.first == next);
      REQUIRE(window.tokens % l.group_tokens == 0);
      next = window.end();
      // Every page holds its runs and the scales of all groups of elements that its components are in.
      const auto bytes = [&](std::uint32_t tokens) {
        std::uint64_t most = 0;
        for (std::uint32_t first = 0; first < d; first += window.group) {
          const std::uint32_t groups = (first + window.group - 1) / format.group - first / format.group + 1;
          most = std::max<std::uint64_t>(most, window.group * ((tokens * bits + 7) / 8) + groups * tokens * 2);
        }
        return Bytes{most};
      };
      REQUIRE(bytes(window.tokens) <= page);
      const std::uint32_t stage = window.tokens / l.window_tokens;
      one_more_fits = one_more_fits && bytes(window.tokens + stage * l.group_tokens) <= page;
    }
    const bool aligned = format.group % l.embedding_group == 0 || l.embedding_group % format.group == 0;
    if (aligned && std::has_single_bit(format.group)) REQUIRE_FALSE(one_more_fits);
  }
}

}  // namespace test_kv_layout
