#include <array>
#include <catch2/catch.hpp>
#include <numeric>

#include "base/error.h"
#include "host_runtime/core/sampling/step_predictor.h"

namespace test_step_predictor {

using namespace csdsim;
using namespace csdsim::host;

TEST_CASE("features count what a step does") {
  const BatchLengths w{{1024, 1030}, 40};
  const auto f = step_features(w, {.page_tokens = 16, .window_tokens = 1024}, {});
  REQUIRE(f.size() == 39);
  // Step 0: contexts 1025 and 1031; 1024 flushed in each.
  CHECK(f[0].flushed == 1024);
  CHECK(f[0].tail == 4);
  CHECK(f[0].windowed == 1024);
  CHECK(f[0].stratum() == Stratum::plain);
  // Context 1040 is a full group: step 9 for the second sequence, 15 for the first.
  CHECK(f[9].token_flushes == 0.5);
  CHECK(f[9].stratum() == Stratum::token_flush);
  CHECK(f[9].flushed == (1024 + 1040) / 2.0);
  CHECK(f[15].token_flushes == 0.5);
  CHECK(f[16].token_flushes == 0);
  const auto small = step_features({{200}, 130}, {.page_tokens = 16, .window_tokens = 64}, {});
  CHECK(small[55].window_flushes == 1);  // context 256
  CHECK(small[55].stratum() == Stratum::window_flush);
  CHECK(small[54].windowed == 192);
  CHECK(small[55].windowed == 256);
  const auto no_windows = step_features({{200}, 130}, {.page_tokens = 16}, {});
  CHECK(no_windows[55].stratum() == Stratum::token_flush);
}

TEST_CASE("a cost that is linear in the work counts is predicted exactly at every step") {
  const auto f = step_features({{100, 107, 300}, 400}, {.page_tokens = 16, .window_tokens = 128}, {});
  const auto cost = [&](std::uint32_t s) {
    return 5 + 0.25 * f[s].flushed - 0.1 * f[s].windowed + 7 * f[s].token_flushes + 40 * f[s].window_flushes;
  };
  // Every window flush, every fourth step of the other strata with flushes, every 30th plain step: all strata have
  // more measured steps than the fit has work counts.
  std::vector<MeasuredGroup> groups;
  std::array<std::uint32_t, kStrata> seen{};
  for (std::uint32_t s = 1; s < f.size(); ++s) {
    const Stratum stratum = f[s].stratum();
    const std::uint32_t every = stratum == Stratum::plain ? 30 : stratum == Stratum::window_flush ? 1 : 4;
    if (seen[static_cast<std::size_t>(stratum)]++ % every == 0) groups.push_back({s, 1});
  }
  std::vector<double> measured;
  for (const auto& g : groups) measured.push_back(cost(g.first));
  const auto predicted = StepPredictor(f).predict(groups, measured);
  for (std::uint32_t s = 0; s < f.size(); ++s) CHECK(predicted[s] == Approx(cost(s)).epsilon(1e-9));
  for (const StratumResiduals& r : StepPredictor(f).residuals(groups, measured)) CHECK(r.variance < 1e-15);
}

TEST_CASE(
    "what the fit misses is interpolated between plain steps, which are met exactly; the others are met in the mean") {
  const auto f = step_features({{64}, 200}, {.page_tokens = 8}, {});
  // Curved plain cost, flush cost that grows with the step and spills into the next one.
  const auto cost = [&](std::uint32_t s) {
    const double plain = 100 + 0.002 * s * s;
    if (s % 8 == 7) return plain + 30 + 0.2 * s;
    return s % 8 == 0 && s > 0 ? plain + 10 : plain;
  };
  const std::vector<MeasuredGroup> groups = {{11, 1}, {31, 2}, {67, 1}, {107, 1}, {151, 2}, {187, 1}};
  std::vector<double> measured;
  for (const auto& g : groups)
    for (std::uint32_t i = 0; i < g.steps; ++i) measured.push_back(cost(g.first + i));
  const auto predicted = StepPredictor(f).predict(groups, measured);
  std::size_t next = 0;
  std::array<double, kStrata> missed{};
  for (const auto& g : groups)
    for (std::uint32_t s = g.first; s < g.first + g.steps; ++s) {
      const double off = predicted[s] - measured[next++];
      if (f[s].stratum() == Stratum::plain) CHECK(off == Approx(0).margin(1e-9));
      missed[static_cast<std::size_t>(f[s].stratum())] += off;
    }
  for (const double sum : missed) CHECK(sum == Approx(0).margin(1e-9));
  // A flush and the step after it stand above the plain steps around them.
  CHECK(predicted[95] - predicted[94] == Approx(30 + 0.2 * 95).margin(4));
  CHECK(predicted[96] - predicted[97] == Approx(10).margin(4));
  double total = 0, estimated = 0;
  for (std::uint32_t s = 0; s < f.size(); ++s) {
    total += cost(s);
    estimated += predicted[s];
  }
  CHECK(estimated == Approx(total).epsilon(0.02));
  CHECK_THROWS_AS(StepPredictor(f).predict({}, {}), InternalError);
}

TEST_CASE("a work count that the measured steps hardly show is not extrapolated") {
  const auto f = step_features({{256}, 1025}, {.page_tokens = 16, .window_tokens = 256}, {});
  // The cost is curved and knows no windows. Three plain steps have 32 tokens beyond their last window, one has 48.
  const auto cost = [](std::uint32_t s) { return 100 + 0.2 * s + 0.0003 * s * s; };
  const std::vector<MeasuredGroup> groups = {{40, 1}, {296, 1}, {568, 1}, {808, 1}};
  std::vector<double> measured;
  for (const auto& g : groups) {
    REQUIRE(f[g.first].stratum() == Stratum::plain);
    CHECK(f[g.first].flushed - f[g.first].windowed == (g.first == 568 ? 48 : 32));
    measured.push_back(cost(g.first));
  }
  const auto predicted = StepPredictor(f).predict(groups, measured);
  for (std::uint32_t s = 20; s < f.size(); s += 20) CHECK(predicted[s] == Approx(cost(s)).epsilon(0.25));
}

TEST_CASE("windows of different lengths flush where what is kept component-major grows") {
  // They end at 64, 128, 256 and from there on every 128 tokens.
  const auto windowed = [](std::uint64_t tokens) -> std::uint64_t {
    return tokens < 128 ? tokens / 64 * 64 : tokens / 128 * 128;
  };
  const KvGrouping uneven{.page_tokens = 16, .window_tokens = 64, .windowed = windowed};
  const auto f = step_features({{100}, 200}, uneven, {.token = 1, .window = 2});
  std::vector<std::uint32_t> flushes;
  for (std::uint32_t s = 0; s < f.size(); ++s) {
    const std::uint32_t context = 100 + s + 1;
    CHECK(f[s].windowed == (context < 128 ? 64 : context < 256 ? 128 : 256));
    if (f[s].window_flushes > 0) flushes.push_back(context);
  }
  CHECK(flushes == std::vector<std::uint32_t>{128, 256});
  CHECK(f[128 - 101 + 2].stratum() == Stratum::after_window_flush);
}

TEST_CASE("a cost that jumps where the engine holds a head less is met from a few steps") {
  const auto share = [](std::uint32_t tokens, std::uint32_t context) {
    CHECK(tokens == context);
    return 1.0 / std::min(16U, 22000 / tokens);
  };
  const BatchLengths lengths{{1024}, 1025};
  const auto f = step_features(lengths, {.page_tokens = 16, .engine_share = share}, {});
  CHECK(f.front().engine_share == Approx(1.0 / 16));
  CHECK(f.back().engine_share == Approx(1.0 / 10));
  const auto cost = [&](std::uint32_t s) { return 0.05 * f[s].flushed + 3000 * f[s].engine_share; };
  std::vector<MeasuredGroup> groups;
  std::vector<double> measured;
  for (const std::uint32_t s : {66U, 230U, 470U, 630U, 840U, 980U}) {
    REQUIRE(f[s].stratum() == Stratum::plain);
    groups.push_back({s, 1});
    measured.push_back(cost(s));
  }
  const auto predicted = StepPredictor(f).predict(groups, measured);
  for (std::uint32_t s = 0; s < f.size(); ++s) CHECK(predicted[s] == Approx(cost(s)));
  // Without the share of the engine, jumps are taken for slopes.
  const auto smooth = step_features(lengths, {.page_tokens = 16}, {});
  const auto missed = StepPredictor(smooth).predict(groups, measured);
  double worst = 0;
  for (std::uint32_t s = 0; s < f.size(); ++s) worst = std::max(worst, std::abs(missed[s] / cost(s) - 1));
  CHECK(worst > 0.02);
}

TEST_CASE("sequences of different lengths have the mean of their shares of the engine") {
  const auto share = [](std::uint32_t tokens, std::uint32_t) { return tokens > 150 ? 0.5 : 0.25; };
  const auto f = step_features({{100, 200, 300}, 100}, {.page_tokens = 16, .engine_share = share}, {});
  CHECK(f[0].engine_share == Approx((0.25 + 0.5 + 0.5) / 3));
  CHECK(f[98].engine_share == Approx(0.5));
}

TEST_CASE("the groups of the newest tokens are those that are full") {
  const auto newest = [](std::uint32_t context) { return context / 4; };
  const auto f = step_features({{100, 140}, 100}, {.page_tokens = 16, .newest = newest}, {});
  CHECK(f[0].newest_groups == Approx((2.0 + 2.0) / 2));   // 101: 25 of them, 5 in no full group; 141: 35 and 13
  CHECK(f[10].newest_groups == Approx((1.0 + 2.0) / 2));  // 111: 27 and 15; 151: 37 and 7
  CHECK(
      step_features({{8}, 20}, {.page_tokens = 16, .newest = [](std::uint32_t) { return 64U; }}, {})[8].newest_groups ==
      Approx(1.0));  // 17 tokens: no more than there are
  CHECK(step_features({{100}, 20}, {.page_tokens = 16}, {})[0].newest_groups == 0);
}

}  // namespace test_step_predictor
