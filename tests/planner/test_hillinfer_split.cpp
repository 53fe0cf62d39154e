// HillInfer: the split between host memory and drive against brute force and against the paper's equations.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/planner/systems/hillinfer/split.h"
#include "host_runtime/core/planner/systems/hillinfer/step_times.h"

namespace test_hillinfer_split {

using namespace csdsim;
using namespace csdsim::host;

namespace {

Bandwidth random_rate(Rng& rng) { return {(1 + rng.below(640)) * 100'000'000}; }

PoolRates random_rates(Rng& rng) {
  return {.host_scores = random_rate(rng),
          .drive_scores = random_rate(rng),
          .host_link = random_rate(rng),
          .drive_link = random_rate(rng),
          .path = rng.below(2) == 0 ? ColdPath::direct : ColdPath::staged};
}

/// A step with a drive that takes a latency and a time per token, and reads whole pages of `rows` tokens for a fetch.
DividedStep random_step(Rng& rng) {
  const auto share = [&](std::uint64_t most) { return static_cast<double>(rng.below(most + 1)) / 100; };
  DividedStep step;
  step.model = {.layers = 2, .width = 64, .heads = 8, .kv_heads = 4, .head_dim = 64, .ffn = 256, .vocab = 1000};
  step.sequences = 1 + static_cast<std::uint32_t>(rng.below(8));
  step.tokens = 100 + rng.below(3000);
  step.chosen = 1 + step.tokens * rng.below(60) / 100;
  step.recent = share(100);
  step.rates.host_to_gpu = random_rate(rng);
  step.rates.host_memory_bandwidth = random_rate(rng);
  step.rates.host_attention = {1'000'000'000ULL << rng.below(12)};
  step.rates.link_latency = SimTime::microseconds(static_cast<std::int64_t>(rng.below(20)));
  step.rates.drives = 1 + static_cast<std::uint32_t>(rng.below(4));
  step.rates.through_host = rng.below(2) == 0;
  const double latency = 1e-6 * static_cast<double>(rng.below(200)), of_token = 1e-9 * double(1 + rng.below(400));
  const double rows = double(1ULL << rng.below(7));
  step.rates.drive_scoring = [=](const ModelShape&, const DriveAttention& asked, ScorePrecision, std::uint32_t) {
    return asked.tokens > 0 ? latency + of_token * asked.tokens * asked.sequences : 0;
  };
  step.grown = rng.below(step.tokens);
  const double program = 1e-6 * static_cast<double>(rng.below(200));
  step.rates.drive_storing = [=](const ModelShape&, const DriveAttention& asked) {
    const double filled = std::floor(asked.tokens / rows) - std::floor((asked.tokens - asked.grown) / rows);
    return DriveStoring{asked.grown > 0 ? filled / asked.grown : 0, program};
  };
  step.rates.drive_fetching = [=](const ModelShape&, const DriveFetch& asked) {
    double pages = 0;
    for (const DriveFetch::Picks& part : asked.parts)
      if (part.chosen > 0) pages += part.tokens / rows * (1 - std::pow(1 - part.chosen / part.tokens, rows));
    return pages > 0 ? latency + 2 * of_token * rows * pages * asked.sequences : 0;
  };
  return step;
}

double rate(Bandwidth b) { return static_cast<double>(b.bytes_per_second); }

}  // namespace

TEST_CASE("the split is the best of all within 1 %, for 1,000 random settings of both topologies", "[hillinfer]") {
  Rng rng(15, "pools");
  std::uint64_t bounded = 0, staged = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    CAPTURE(trial);
    const PoolRates rates = random_rates(rng);
    const PoolShares shares{.hot = Ratio::of(1 + rng.below(100), 100), .cold = Ratio::of(1 + rng.below(100), 100)};
    const std::uint64_t tokens = 1 + rng.below(40'000), most = rng.below(3) == 0 ? rng.below(tokens + 1) : tokens;
    const std::uint64_t hot = hot_tokens(rates, shares, tokens, most);
    REQUIRE(hot <= most);
    // The model written out once more, as the paper has it, in bytes of one token each.
    const double a_c = shares.hot.value(), a_s = shares.cold.value();
    const auto time = [&](std::uint64_t h) {
      const double m_c = static_cast<double>(h), m_s = static_cast<double>(tokens - h);
      const double host = m_c / rate(rates.host_scores) + a_c * m_c / rate(rates.host_link);
      double drive = m_s / rate(rates.drive_scores) + a_s * m_s / rate(rates.drive_link);
      if (rates.path == ColdPath::staged) drive += a_s * m_s / rate(rates.host_link);
      return std::max(host, drive);
    };
    double best = time(0);
    for (std::uint64_t h = 1; h <= most; ++h) best = std::min(best, time(h));
    REQUIRE(time(hot) <= best * 1.01);
    REQUIRE(time(hot) <= best * (1 + 1e-9));  // and better than asked: the closed form is exact
    bounded += hot == most && most < tokens;
    staged += rates.path == ColdPath::staged;
  }
  CHECK(bounded > 50);
  CHECK(staged > 300);
}

TEST_CASE("scores of the drive wait for programs in some steps, as far as those of the host do not take as long") {
  StepTimes times{.host_scores = 5, .drive_scores = 3, .choice = 1, .storing = {.share = 0.25, .seconds = 4}};
  CHECK(times.total() == Approx(0.75 * 5 + 0.25 * 7 + 1));
  times.host_scores = 8;
  CHECK(times.total() == Approx(8 + 1));
  times.host_scores = 0;
  CHECK(times.total() == Approx(3 + 0.25 * 4 + 1));
}

TEST_CASE("the split from times is the best of all within 1 %, for 1,000 random settings of both topologies",
          "[hillinfer]") {
  Rng rng(16, "pools");
  std::uint64_t bounded = 0, between = 0, staged = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    CAPTURE(trial);
    const DividedStep step = random_step(rng);
    const std::uint64_t least = rng.below(step.tokens / 4);
    const std::uint64_t most = rng.below(3) == 0 ? least + rng.below(step.tokens - least) : step.tokens;
    const std::uint64_t hot = fastest_hot_tokens(step, least, most);
    REQUIRE(hot >= least);
    REQUIRE(hot <= most);
    double best = step_times(step, least).total();
    for (std::uint64_t h = least; h <= most; ++h) best = std::min(best, step_times(step, h).total());
    REQUIRE(step_times(step, hot).total() <= best * 1.01);
    bounded += hot == most && most < step.tokens;
    between += hot > least && hot < most;
    staged += step.rates.through_host;
  }
  CHECK(bounded > 50);
  CHECK(between > 200);
  CHECK(staged > 300);
}

TEST_CASE("the chosen tokens are in both pools together, the newest most often", "[hillinfer]") {
  Rng rng(17, "pools");
  for (int trial = 0; trial < 200; ++trial) {
    DividedStep step = random_step(rng);
    step.rates.drives = 1;
    double cold = 0;
    step.rates.drive_fetching = [&](const ModelShape&, const DriveFetch& asked) {
      cold = asked.parts[0].chosen + asked.parts[1].chosen;
      return 0.0;
    };
    const std::uint64_t hot = rng.below(step.tokens + 1);
    const StepTimes times = step_times(step, hot);
    const double kv = static_cast<double>(step.model.kv_bytes_per_token_and_layer().value);
    const double gathered = times.gather * rate(step.rates.host_memory_bandwidth) / (2 * kv * step.sequences);
    CAPTURE(trial, hot, step.tokens, step.chosen, step.recent, cold, gathered);
    REQUIRE(gathered + cold == Approx(step.chosen));
    // As many newest tokens as are chosen have the share `recent` of them.
    if (hot == step.chosen) REQUIRE(gathered == Approx(step.recent * double(step.chosen)));
    const double expected = hot < step.chosen ? step.recent * double(hot)
                                              : double(step.chosen) - (1 - step.recent) * double(step.chosen) *
                                                                          double(step.tokens - hot) /
                                                                          double(step.tokens - step.chosen);
    REQUIRE(gathered == Approx(expected).margin(1e-6));
  }
}

TEST_CASE("beta is that of equation 4, and of section 5.4 where data cross the host", "[hillinfer]") {
  Rng rng(4, "beta");
  for (int trial = 0; trial < 1000; ++trial) {
    CAPTURE(trial);
    PoolRates rates = random_rates(rng);
    const PoolShares shares{.hot = Ratio{1, 5}, .cold = Ratio{1, 5}};
    const double a = 0.2, fc = rate(rates.host_scores), fs = rate(rates.drive_scores), bc = rate(rates.host_link),
                 bs = rate(rates.drive_link);
    rates.path = ColdPath::direct;
    REQUIRE(balanced_pools(rates, shares) == Approx(fc * bc * (bs + a * fs) / (fs * bs * (bc + a * fc))));
    rates.path = ColdPath::staged;
    REQUIRE(balanced_pools(rates, shares) ==
            Approx(fc * (bs * bc + a * bc * fs + a * bs * fs) / (fs * bs * (bc + a * fc))));
  }
}

TEST_CASE("measured shares move the split: more important tokens on one side leave fewer tokens there", "[hillinfer]") {
  const PoolRates rates{.host_scores = {60'000'000'000},
                        .drive_scores = {6'400'000'000},
                        .host_link = {25'000'000'000},
                        .drive_link = {3'200'000'000}};
  const std::uint64_t even = hot_tokens(rates, {.hot = {1, 5}, .cold = {1, 5}}, 10'000, 10'000);
  CHECK(hot_tokens(rates, {.hot = {1, 4}, .cold = {1, 20}}, 10'000, 10'000) < even);
  CHECK(hot_tokens(rates, {.hot = {1, 5}, .cold = {1, 2}}, 10'000, 10'000) > even);
  CHECK(hot_tokens(rates, {.hot = {1, 5}, .cold = {1, 5}}, 10'000, 100) == 100);
  CHECK_THROWS_AS(hot_tokens({}, {}, 10, 10), InternalError);
}

}  // namespace test_hillinfer_split
