// Ranks against their exact probabilities; the scatter against what a bijection is.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "experiment/block_io/requests/permutation.h"
#include "experiment/block_io/requests/zipf.h"

namespace test_zipf {

using namespace csdsim;
using namespace csdsim::experiment::workload;

TEST_CASE("zipf ranks come as often as their probabilities say") {
  constexpr std::uint64_t kSeed = 11;
  constexpr std::uint64_t kDraws = 200'000;
  for (const double exponent : {0.01, 0.5, 0.99, 1.0, 1.3, 4.0})
    for (const std::uint64_t n : {1, 2, 3, 50, 1000}) {
      INFO("seed " << kSeed << " exponent " << exponent << " n " << n);
      Rng rng(kSeed);
      const ZipfSampler sampler(n, exponent);
      std::vector<std::uint64_t> seen(n);
      for (std::uint64_t i = 0; i < kDraws; ++i) {
        const std::uint64_t rank = sampler(rng);
        REQUIRE(rank < n);
        ++seen[rank];
      }
      double sum = 0;
      for (std::uint64_t k = 1; k <= n; ++k) sum += std::pow(static_cast<double>(k), -exponent);
      // Pearson's chi-square over ranks that are expected at least five times; the rest is one class.
      double chi = 0, rest_expected = 0, rest_seen = 0;
      std::uint64_t classes = 0;
      const auto add = [&](double observed, double expected) {
        chi += (observed - expected) * (observed - expected) / expected;
        ++classes;
      };
      for (std::uint64_t k = 1; k <= n; ++k) {
        const double expected = std::pow(static_cast<double>(k), -exponent) / sum * kDraws;
        if (expected >= 5) {
          add(static_cast<double>(seen[k - 1]), expected);
        } else {
          rest_expected += expected;
          rest_seen += static_cast<double>(seen[k - 1]);
        }
      }
      if (rest_expected >= 5) add(rest_seen, rest_expected);
      const double freedom = static_cast<double>(classes - 1);
      CHECK(chi < freedom + 4 * std::sqrt(2 * freedom + 1) + 4);  // beyond four standard deviations
    }
}

TEST_CASE("zipf draws over a billion ranks cost no table and reach the tail") {
  Rng rng(3);
  const std::uint64_t n = 1'000'000'000;
  const ZipfSampler sampler(n, 0.99);
  std::uint64_t largest = 0, first = 0;
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t rank = sampler(rng);
    REQUIRE(rank < n);
    largest = std::max(largest, rank);
    first += rank == 0;
  }
  CHECK(largest > n / 2);
  // H(n, 0.99) is about 23.6: the first rank has 4.2 %.
  CHECK(first > 3'900);
  CHECK(first < 4'600);
}

TEST_CASE("the scatter is a bijection, and another one for another seed") {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 63, 64, 65, 1000, 4097}) {
    const Permutation a(n, 1), b(n, 2);
    std::vector<bool> hit(n);
    std::uint64_t same = 0, fixed = 0;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t to = a(i);
      REQUIRE(to < n);
      REQUIRE_FALSE(hit[to]);
      hit[to] = true;
      same += to == b(i);
      fixed += to == i;
    }
    INFO("n " << n);
    if (n >= 63) {
      CHECK(same < 12);
      CHECK(fixed < 12);
    }
  }
}

}  // namespace test_zipf
