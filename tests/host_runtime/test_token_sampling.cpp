#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/decoder/token_sampling.h"

namespace test_token_sampling {

using namespace csdsim;
using namespace csdsim::host;

namespace {

// Probabilities from the definition: the softmax at the temperature, of which the k likeliest tokens stay, of these the
// likeliest until their renormalised mass reaches p; of equals the lower id first.
std::vector<double> exact_distribution(const std::vector<float>& logits, const SamplingOptions& o) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
  const std::size_t k = o.top_k == 0 ? order.size() : std::min<std::size_t>(o.top_k, order.size());
  const auto weight = [&](std::size_t id) { return std::exp(double{logits[id]} / double{o.temperature}); };
  double all = 0, kept = 0;
  for (std::size_t i = 0; i < k; ++i) all += weight(order[i]);
  std::vector<double> p(logits.size(), 0.0);
  for (std::size_t i = 0; i < k && kept < double{o.top_p} * all; ++i) kept += p[order[i]] = weight(order[i]);
  for (double& x : p) x /= kept;
  return p;
}

// Pearson's statistic of `draws` samples against `p`, in standard deviations above its mean (Wilson and Hilferty's cube
// root). Tokens of probability 0 must not come.
double chi_squared_deviation(const std::vector<float>& logits, const SamplingOptions& o, std::uint64_t draws) {
  const std::vector<double> p = exact_distribution(logits, o);
  std::vector<double> counts(p.size(), 0.0);
  for (std::uint64_t i = 0; i < draws; ++i) counts[sample(logits, o, 11, i).value] += 1;
  double statistic = 0, freedom = -1;
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * static_cast<double>(draws);
    if (expected == 0) {
      REQUIRE(counts[i] == 0);
      continue;
    }
    REQUIRE(expected > 5);  // or the statistic is not chi-squared
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
    freedom += 1;
  }
  if (freedom == 0) return 0;
  const double spread = 2 / (9 * freedom);
  return (std::cbrt(statistic / freedom) - (1 - spread)) / std::sqrt(spread);
}

}  // namespace

TEST_CASE("random numbers are the same everywhere, in [0, 1), and spread") {
  CHECK(uniform(0, 0, 0) == 0x1.1c13ade1c7e5cp-3);
  CHECK(uniform(1, 2, 3) == 0x1.a0e68ea1fbc6cp-1);
  CHECK(uniform(1, 2, 3) != uniform(1, 3, 2));
  CHECK(uniform(2, 1, 3) != uniform(1, 2, 3));
  double sum = 0;
  for (std::uint64_t step = 0; step < 10000; ++step) {
    const double u = uniform(9, 1, step);
    REQUIRE(u >= 0);
    REQUIRE(u < 1);
    sum += u;
  }
  CHECK(sum / 10000 == Approx(0.5).margin(0.01));
}

TEST_CASE("greedy takes the largest logit, ties the lower id") {
  CHECK(sample(std::vector<float>{1, 3, 3, 2}, {}, 0, 0) == TokenId{1});
  CHECK(sample(std::vector<float>{-INFINITY, -5}, {}, 0, 0) == TokenId{1});
}

TEST_CASE("sampling follows the softmax at its temperature") {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, -INFINITY};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    std::vector<double> counts(4, 0.0);
    const int draws = 40000;
    const SamplingOptions options{.temperature = temperature, .seed = 3};
    for (int i = 0; i < draws; ++i) counts[sample(logits, options, 7, static_cast<std::uint64_t>(i)).value] += 1;
    double total = 0;
    for (std::size_t i = 0; i < 3; ++i) total += std::exp(double{logits[i]} / temperature);
    for (std::size_t i = 0; i < 3; ++i) {
      CHECK(counts[i] / draws == Approx(std::exp(double{logits[i]} / temperature) / total).margin(0.01));
    }
    CHECK(counts[3] == 0);
  }
}

TEST_CASE("top-k and top-p cut the tail") {
  const std::vector<float> logits{1.0f, 4.0f, 3.0f, 3.0f, -2.0f};
  std::vector<int> seen(5, 0);
  for (std::uint64_t i = 0; i < 2000; ++i) {
    ++seen[sample(logits, {.temperature = 3.0f, .top_k = 2, .seed = 1}, 0, i).value];
  }
  // Equal logits: the lower id is kept.
  CHECK(seen[1] > 0);
  CHECK(seen[2] > 0);
  CHECK(seen[0] + seen[3] + seen[4] == 0);

  // Probabilities 0.5, 0.3, 0.2: p = 0.49 keeps one token, p = 0.51 two.
  const std::vector<float> thirds{std::log(0.3f), std::log(0.5f), std::log(0.2f)};
  seen.assign(3, 0);
  for (std::uint64_t i = 0; i < 2000; ++i) ++seen[sample(thirds, {.temperature = 1, .top_p = 0.49f}, 0, i).value];
  CHECK(seen == std::vector<int>{0, 2000, 0});
  seen.assign(3, 0);
  for (std::uint64_t i = 0; i < 2000; ++i) ++seen[sample(thirds, {.temperature = 1, .top_p = 0.51f}, 0, i).value];
  CHECK(seen[2] == 0);
  CHECK(seen[0] == Approx(2000 * 0.375).margin(100));
}

TEST_CASE("top-k, top-p and temperature, alone and together: chi-squared against the exact distribution") {
  std::vector<float> logits(40);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = 2.0f * std::sin(1.7f * static_cast<float>(i * i));
  logits[7] = logits[31] = logits[12];  // equals, whose ids decide
  logits[20] = -INFINITY;
  double largest = 0, smallest = 0;
  for (const float temperature : {0.7f, 1.0f, 1.8f}) {
    for (const std::uint32_t k : {0U, 1U, 2U, 9U, 40U, 1000U}) {
      for (const float p : {1.0f, 0.95f, 0.5f, 1e-6f}) {
        const SamplingOptions options{.temperature = temperature, .top_k = k, .top_p = p, .seed = 5};
        const double deviation = chi_squared_deviation(logits, options, 40000);
        INFO("temperature " << temperature << " top-k " << k << " top-p " << p << ": " << deviation);
        CHECK(std::abs(deviation) < 4);
        largest = std::max(largest, deviation);
        smallest = std::min(smallest, deviation);
      }
    }
  }
  // The test has power: it would not be passed by numbers that are too even either.
  CHECK(largest > 0.5);
  CHECK(smallest < -0.5);
}

TEST_CASE("a cut that leaves one token is greedy, one that leaves all changes no token") {
  const std::vector<float> logits{0.3f, 2.0f, 2.0f, -1.0f, 1.9f};
  for (std::uint64_t step = 0; step < 500; ++step) {
    const SamplingOptions plain{.temperature = 2, .seed = 9};
    CHECK(sample(logits, {.temperature = 2, .top_k = 1, .seed = 9}, 0, step) == TokenId{1});
    CHECK(sample(logits, {.temperature = 2, .top_p = 1e-9f, .seed = 9}, 0, step) == TokenId{1});
    CHECK(sample(logits, {.temperature = 1e-30f, .seed = 9}, 0, step).value <= 2);
    CHECK(sample(std::vector<float>{-3.0f}, plain, 0, step) == TokenId{0});
    CHECK(sample(std::vector<float>{-INFINITY, 1e30f, -1e30f}, plain, 0, step) == TokenId{1});
    CHECK(sample(logits, {.temperature = 2, .top_k = 5, .seed = 9}, 0, step) ==
          sample(logits, {.temperature = 2, .top_k = 77, .seed = 9}, 0, step));
  }
}

TEST_CASE("options out of range and broken logits are refused") {
  CHECK_THROWS_AS(check({.temperature = -1}), UserError);
  CHECK_THROWS_AS(check({.temperature = std::numeric_limits<float>::quiet_NaN()}), UserError);
  CHECK_THROWS_AS(check({.top_p = 0}), UserError);
  CHECK_THROWS_AS(check({.top_p = 1.5f}), UserError);
  CHECK_NOTHROW(check({.temperature = 0.8f, .top_k = 40, .top_p = 0.9f}));
  CHECK_THROWS_AS(sample(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, {}, 0, 0), UserError);
  for (const float temperature : {0.0f, 1.0f}) {
    CHECK_THROWS_AS(sample(std::vector<float>{1, INFINITY}, {.temperature = temperature}, 0, 0), UserError);
    CHECK_THROWS_AS(sample(std::vector<float>{-INFINITY, -INFINITY}, {.temperature = temperature}, 0, 0), UserError);
  }
}

}  // namespace test_token_sampling
