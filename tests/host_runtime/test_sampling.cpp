#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/sampling.h"

using namespace csdsim;
using namespace csdsim::host;

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

TEST_CASE("options out of range and broken logits are refused") {
  CHECK_THROWS_AS(check({.temperature = -1}), UserError);
  CHECK_THROWS_AS(check({.temperature = std::numeric_limits<float>::quiet_NaN()}), UserError);
  CHECK_THROWS_AS(check({.top_p = 0}), UserError);
  CHECK_THROWS_AS(check({.top_p = 1.5f}), UserError);
  CHECK_NOTHROW(check({.temperature = 0.8f, .top_k = 40, .top_p = 0.9f}));
  CHECK_THROWS_AS(sample(std::vector<float>{1, std::numeric_limits<float>::quiet_NaN()}, {}, 0, 0), UserError);
}
