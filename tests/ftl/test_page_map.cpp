#include <catch2/catch.hpp>

#include <array>
#include <optional>
#include <set>

#include "base/rng.h"
#include "ftl/block/page_map.h"

namespace test_page_map {

using namespace csdsim;
using namespace csdsim::ftl;

TEST_CASE("the seeded permutation is a bijection and knows its inverse") {
  for (const std::uint64_t size : {1u, 2u, 3u, 4u, 5u, 17u, 255u, 256u, 257u, 5000u}) {
    for (const std::uint64_t seed : {0u, 1u, 77u}) {
      const PagePermutation p(size, seed);
      std::vector<bool> hit(size, false);
      for (std::uint64_t x = 0; x < size; ++x) {
        const std::uint64_t y = p.forward(x);
        REQUIRE(y < size);
        REQUIRE_FALSE(hit[y]);
        hit[y] = true;
        REQUIRE(p.backward(y) == x);
      }
    }
  }
}

TEST_CASE("a random permutation spreads neighbours, an identity keeps them") {
  constexpr std::uint64_t kSize = 100'000;
  const PagePermutation random(kSize, 3);
  std::uint64_t near = 0;
  for (std::uint64_t x = 0; x + 1 < kSize; ++x) {
    const auto a = static_cast<std::int64_t>(random.forward(x));
    const auto b = static_cast<std::int64_t>(random.forward(x + 1));
    near += std::abs(a - b) < 1000 ? 1 : 0;
  }
  CHECK(near < kSize / 30);  // expected: 2 %
  CHECK(random.forward(0) != PagePermutation(kSize, 4).forward(0));
  const PagePermutation identity(kSize, std::nullopt);
  CHECK(identity.forward(1234) == 1234);
  CHECK(identity.backward(1234) == 1234);
}

TEST_CASE("a preconditioned map is consistent in both directions, before and after it is changed") {
  const FlashGeometry g{2, 2, 1, 8, 8, Bytes{512}};
  for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{9}}) {
    PageMap map(g, kChannelDiePlane, 200);
    map.precondition(150, seed);
    std::set<std::uint64_t> used;
    for (std::uint64_t p = 0; p < 200; ++p) {
      const PhysicalPageAddress ppa = map.lookup(LogicalPage{p});
      REQUIRE(ppa.valid() == (p < 150));
      if (!ppa.valid()) continue;
      REQUIRE(used.insert(ppa.value).second);
      REQUIRE(map.owner(ppa) == LogicalPage{p});
      REQUIRE(ppa.value % g.pages_per_plane() <= 150 / g.planes());
    }
    const PhysicalPageAddress free_page{g.pages() - 1};
    CHECK_FALSE(map.owner(free_page).has_value());
    const PhysicalPageAddress old = map.lookup(LogicalPage{42});
    CHECK(map.bind(LogicalPage{42}, free_page) == old);
    CHECK_FALSE(map.owner(old).has_value());
    CHECK(map.owner(free_page) == LogicalPage{42});
    CHECK(map.unbind(LogicalPage{42}) == free_page);
    CHECK_FALSE(map.owner(free_page).has_value());
    const PhysicalPageAddress other = map.lookup(LogicalPage{7});
    CHECK(map.owner(other) == LogicalPage{7});
    map.unbind(LogicalPage{7});
    CHECK_FALSE(map.owner(other).has_value());
  }
}

TEST_CASE("a preconditioned map that keeps planes maps each page onto the plane of its rank, one to one") {
  const FlashGeometry g{2, 2, 1, 8, 8, Bytes{512}};
  const Stripe stripe(g, kChannelDiePlane);
  PageMap map(g, kChannelDiePlane, 200);
  map.precondition(150, 9, true);
  std::set<std::uint64_t> used;
  bool moved = false;
  for (std::uint64_t p = 0; p < 150; ++p) {
    const PhysicalPageAddress ppa = map.lookup(LogicalPage{p});
    REQUIRE(g.plane_of(ppa) == stripe.plane_at(p));
    REQUIRE(ppa.value % g.pages_per_plane() <= 150 / g.planes());
    REQUIRE(used.insert(ppa.value).second);
    REQUIRE(map.owner(ppa) == LogicalPage{p});
    moved = moved || ppa.value % g.pages_per_plane() != p / g.planes();
  }
  CHECK(moved);
}

TEST_CASE("runs of pages lie side by side on a plane, one to one, in both directions, in any order and at any end") {
  const FlashGeometry g{2, 2, 1, 8, 16, Bytes{512}};
  const Stripe stripe(g, kChannelDiePlane);
  for (const std::uint32_t run : {2u, 4u})
    for (const bool keep_plane : {false, true})
      for (const std::optional<std::uint64_t> seed : {std::optional<std::uint64_t>{}, std::optional<std::uint64_t>{9}})
        for (std::uint64_t pages = 1; pages <= 100; pages += 3) {
          CAPTURE(run, keep_plane, seed.has_value(), pages);
          PageMap map(g, kChannelDiePlane, 400, run);
          map.precondition(pages, seed, keep_plane);
          std::set<std::uint64_t> used;
          for (std::uint64_t p = 0; p < pages; ++p) {
            const PhysicalPageAddress ppa = map.lookup(LogicalPage{p});
            REQUIRE(used.insert(ppa.value).second);
            REQUIRE(map.owner(ppa) == LogicalPage{p});
            if (keep_plane || !seed) REQUIRE(g.plane_of(ppa) == stripe.plane_at(p / run));
            if (!seed) REQUIRE(ppa.value % run == p % run);
          }
          // No plane has more than its share of whole runs, and one run more.
          for (const std::uint64_t ppa : used)
            REQUIRE(ppa % g.pages_per_plane() < (pages / (run * g.planes()) + 1) * run);
        }
}

TEST_CASE("a run is what its pages are one by one, whatever order they lie in and whatever was written") {
  const FlashGeometry g{2, 2, 1, 8, 12, Bytes{512}};
  std::uint64_t most = 0;
  for (std::uint64_t variant = 0; variant < 24; ++variant) {
    const auto run = std::array{1U, 3U, 4U}[variant % 3];
    const std::optional<std::uint64_t> seed = variant / 3 % 2 == 0 ? std::nullopt : std::optional(variant);
    const bool keep_plane = variant / 6 % 2 == 1;
    CAPTURE(run, seed.has_value(), keep_plane);
    PageMap map(g, kChannelDiePlane, 340, run);
    map.precondition(301, seed, keep_plane);
    Rng rng(variant, "runs");
    for (int step = 0; step < 200; ++step) {
      const LogicalPage page{rng.below(340)};
      const auto count = static_cast<std::uint32_t>(1 + rng.below(std::min<std::uint64_t>(10, 340 - page.value)));
      for (std::uint32_t i = 0; i < count;) {
        const PageMap::Run found = map.lookup_run(LogicalPage{page.value + i}, count - i);
        REQUIRE(found.count >= 1);
        REQUIRE(found.count <= count - i);
        most = std::max<std::uint64_t>(most, found.count);
        for (std::uint32_t k = 0; k < found.count; ++k, ++i) {
          const PhysicalPageAddress one = map.lookup(LogicalPage{page.value + i});
          REQUIRE(one.valid() == found.first.valid());
          if (one.valid()) REQUIRE(one.value == found.first.value + k);
        }
      }
      const PhysicalPageAddress to{rng.below(g.pages() - count)};
      if (step % 3 == 0) map.rebind_run(page, to, count);
      if (step % 3 == 1) map.unbind(page);
      if (step % 3 == 0)
        for (std::uint32_t i = 0; i < count; ++i) {
          REQUIRE(map.lookup(LogicalPage{page.value + i}).value == to.value + i);
          REQUIRE(map.resident({to.value + i}) == LogicalPage{page.value + i});
        }
    }
  }
  CHECK(most == 10);
}

TEST_CASE("a run may begin in one segment of the map and end in the next") {
  constexpr std::uint64_t kEdge = std::uint64_t{1} << 18;
  SparseArray<std::uint32_t> array(2 * kEdge);
  array.set_run(kEdge - 2, 7, 5);
  for (std::uint64_t i = 0; i < 5; ++i) CHECK(array.get(kEdge - 2 + i) == 7 + i);
  CHECK(array.get(kEdge - 3) == 0);
  CHECK(array.get(kEdge + 3) == 0);
}

TEST_CASE("drives of more pages than 32 bits count are mapped as well") {
  const FlashGeometry g{128, 16, 2, 1 << 16, 64, Bytes::kib(4)};
  REQUIRE(g.pages() > std::uint64_t{1} << 33);
  const std::uint64_t pages = g.pages() - g.pages() / 10;
  PageMap map(g, kChannelDiePlane, pages);
  map.precondition(pages, 3);
  const LogicalPage last{pages - 1};
  const PhysicalPageAddress far{g.pages() - 1};
  REQUIRE(map.owner(map.lookup(last)) == last);
  map.bind(last, far);
  CHECK(map.lookup(last) == far);
  CHECK(map.owner(far) == last);
}

TEST_CASE("a drive of exactly 2^32 pages has entries of more than 32 bits, in both directions") {
  const FlashGeometry g{64, 16, 2, 1 << 15, 64, Bytes::kib(4)};
  REQUIRE(g.pages() == std::uint64_t{1} << 32);
  PageMap map(g, kChannelDiePlane, g.pages());
  const LogicalPage last{g.pages() - 1};
  const PhysicalPageAddress far{g.pages() - 1};
  map.bind(last, far);
  CHECK(map.lookup(last) == far);
  CHECK(map.owner(far) == last);
}

}  // namespace test_page_map
