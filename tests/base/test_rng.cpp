#include <array>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/rng.h"

namespace test_rng {

using namespace csdsim;

TEST_CASE("known answers") {
  // SplitMix64 from state 0 (reference implementation by S. Vigna).
  CHECK(splitmix64(0) == 0xE220A8397B1DCDAFULL);
  CHECK(splitmix64(0x9E3779B97F4A7C15ULL) == 0x6E789E6AA1B965F4ULL);
  // FNV-1a test vectors.
  CHECK(fnv1a64("") == 0xCBF29CE484222325ULL);
  CHECK(fnv1a64("a") == 0xAF63DC4C8601EC8CULL);
  CHECK(fnv1a64("foobar") == 0x85944171F73967E8ULL);
  // xoshiro256** seeded with SplitMix64 from 0: its state is e220a839..., 6e789e6a..., 06c45d18..., f88bb8a8...
  Rng rng(0);
  CHECK(rng.next() == 0x99EC5F36CB75F2B4ULL);
  CHECK(rng.next() == 0xBF6E1F784956452AULL);
  CHECK(rng.next() == 0x1A5F849D4933E6E0ULL);
}

TEST_CASE("streams are reproducible and differ by name and seed") {
  Rng a(1, "workload"), b(1, "workload"), c(1, "selection"), d(2, "workload");
  const std::uint64_t first = a.next();
  CHECK(first == b.next());
  CHECK(first != c.next());
  CHECK(first != d.next());
  CHECK(counter_random(1, 2) == counter_random(1, 2));
  CHECK(counter_random(1, 2) != counter_random(2, 1));
}

TEST_CASE("uniform integers are uniform, whatever the bound") {
  Rng rng(5);
  for (const std::uint64_t n : {3ull, 7ull, 10ull}) {
    std::array<int, 10> hits{};
    constexpr int kDraws = 300'000;
    for (int i = 0; i < kDraws; ++i) ++hits.at(rng.below(n));
    const double expected = static_cast<double>(kDraws) / static_cast<double>(n);
    for (std::uint64_t v = 0; v < n; ++v) CHECK(std::abs(hits[v] - expected) < 5 * std::sqrt(expected));
  }
  // A bound of 3/4 of the range: without rejection, four draws would fall on three values, the multiples of 3 twice.
  constexpr std::uint64_t kBound = 3ull << 62;
  int multiples = 0;
  for (int i = 0; i < 30'000; ++i) multiples += rng.below(kBound) % 3 == 0;
  CHECK(std::abs(multiples - 10'000) < 500);
  CHECK(rng.below(1) == 0);
}

TEST_CASE("uniform reals lie in [0, 1)") {
  Rng rng(6);
  double sum = 0, low = 1, high = 0;
  for (int i = 0; i < 100'000; ++i) {
    const double u = rng.unit();
    sum += u;
    low = std::min(low, u);
    high = std::max(high, u);
  }
  CHECK(low >= 0);
  CHECK(high < 1);
  CHECK(sum / 100'000 == Approx(0.5).margin(0.005));
}

}  // namespace test_rng
