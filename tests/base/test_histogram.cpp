#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/histogram.h"
#include "base/rng.h"

namespace test_histogram {

using namespace csdsim;

namespace {
std::uint64_t nearest_rank(const std::vector<std::uint64_t>& sorted, std::uint32_t n, std::uint32_t d) {
  const std::uint64_t rank = std::max<std::uint64_t>(1, (sorted.size() * n + d - 1) / d);
  return sorted[rank - 1];
}
}  // namespace

TEST_CASE("an empty histogram says nothing but zero") {
  const Histogram h;
  CHECK(h.count() == 0);
  CHECK(h.min() == 0);
  CHECK(h.quantile(50) == 0);
  CHECK(h.mean() == 0);
}

TEST_CASE("percentiles are nearest-rank and exact while samples are few") {
  Histogram h;
  for (std::uint64_t v = 100; v >= 1; --v) h.add(v);
  CHECK(h.quantile(50) == 50);
  CHECK(h.quantile(99) == 99);
  CHECK(h.quantile(100) == 100);
  CHECK(h.quantile(0) == 1);
  CHECK(h.quantile(999, 1000) == 100);
  CHECK(h.quantile(7) == 7);  // ceil(0.07 * 100) is 8 in doubles
  CHECK(h.mean() == 50.5);
  h.add(1'000'000);
  CHECK(h.quantile(100) == 1'000'000);
  CHECK(h.quantile(99) == 100);
}

TEST_CASE("with many samples percentiles stay within a tenth of a percent") {
  constexpr std::uint64_t kSeed = 9;
  INFO("seed " << kSeed);
  for (const std::size_t count : {Histogram::kExactSamples, Histogram::kExactSamples + 1, std::size_t{400'000}}) {
    Rng rng(kSeed);
    Histogram h;
    std::vector<std::uint64_t> all;
    double sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
      // Latencies over six decades, and some tiny values.
      const auto v = static_cast<std::uint64_t>(std::exp(rng.unit() * 28));
      all.push_back(v);
      sum += static_cast<double>(v);
      h.add(v);
    }
    std::sort(all.begin(), all.end());
    const bool exact = count <= Histogram::kExactSamples;
    for (const std::uint32_t q : {1u, 10u, 500u, 900u, 990u, 999u, 1000u}) {
      const std::uint64_t want = nearest_rank(all, q, 1000);
      const std::uint64_t got = h.quantile(q, 1000);
      INFO(count << " samples, quantile " << q << ": " << want << " " << got);
      if (exact || want < 1024 || q == 1000) {
        CHECK(got == want);
      } else {
        CHECK(std::abs(static_cast<double>(got) - static_cast<double>(want)) <= static_cast<double>(want) / 2000);
      }
    }
    CHECK(h.min() == all.front());
    CHECK(h.max() == all.back());
    CHECK(h.mean() == Approx(sum / static_cast<double>(count)));
  }
}

TEST_CASE("the largest values fit") {
  Histogram h;
  for (std::size_t i = 0; i <= Histogram::kExactSamples; ++i) h.add(~std::uint64_t{0} - i);
  CHECK(h.max() == ~std::uint64_t{0});
  CHECK(h.quantile(50) >= h.min());
}

TEST_CASE("adding a histogram is adding its samples") {
  const std::size_t most = Histogram::kExactSamples;
  const std::size_t first = GENERATE_COPY(std::size_t{0}, std::size_t{1}, most / 2, most + 1);
  const std::size_t second = GENERATE_COPY(std::size_t{0}, std::size_t{1}, most / 2, most / 2 + 1, most + 1);
  csdsim::Rng rng(5, "histogram");
  Histogram one;
  Histogram other;
  Histogram all;
  for (std::size_t i = 0; i < first + second; ++i) {
    const std::uint64_t sample = rng.below(std::uint64_t{1} << (1 + rng.below(40)));
    (i < first ? one : other).add(sample);
    all.add(sample);
  }
  if (first > 0) one.quantile(50);  // which sorts
  one.add(other);
  CHECK(one.count() == all.count());
  CHECK(one.min() == all.min());
  CHECK(one.max() == all.max());
  CHECK(one.mean() == all.mean());
  for (std::uint32_t p = 0; p <= 100; ++p) CHECK(one.quantile(p) == all.quantile(p));
}

}  // namespace test_histogram
