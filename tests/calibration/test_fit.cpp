// Fits of models in closed form, whose parameters are known.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "experiment/calibration/fit.h"

namespace test_fit {

using namespace csdsim;
using namespace csdsim::experiment;

namespace {

using Values = std::vector<double>;

FitParameter between(const char* name, double low, double high) {
  return {.name = name, .low = low, .high = high, .choices = {}, .start = std::sqrt(low * high)};
}

FitParameter one_of(const char* name, Values choices) {
  return {.name = name, .low = 0, .high = 0, .choices = choices, .start = choices.front()};
}

/// A drive in closed form: latency of one request, and rates that the slowest part limits.
Values drive(const Values& v) {
  const double array = v[0], firmware = v[1], channel = v[2];
  Values figures;
  for (const double size : {4e3, 16e3, 64e3}) {
    figures.push_back(array + firmware + size / channel);                         // one at a time
    figures.push_back(std::min({16 / array, 1 / firmware, 8 * channel / size}));  // many
  }
  return figures;
}

}  // namespace

TEST_CASE("a fit finds the parameters of a model in closed form") {
  const Values truth{61e-6, 1.7e-6, 0.93e9};
  const std::vector<FitParameter> parameters{between("array", 5e-6, 500e-6), between("firmware", 50e-9, 50e-6),
                                             between("channel", 1e8, 5e9)};
  for (const std::uint64_t seed : {1U, 2U, 3U}) {
    const Fit fit = fit_model(drive, parameters, drive(truth), {.seed = seed});
    INFO("seed " << seed << ", error " << fit.error << ", calls " << fit.calls);
    CHECK(fit.error < 0.002);
    CHECK(fit.values[0] == Approx(truth[0]).epsilon(0.01));
    CHECK(fit.values[2] == Approx(truth[2]).epsilon(0.01));
    // Each range holds the truth and is narrow, as every parameter shows in a figure of its own but the firmware.
    for (const std::size_t p : {0U, 2U}) {
      CHECK(fit.ranges[p].low < truth[p]);
      CHECK(fit.ranges[p].high > truth[p]);
      CHECK(fit.ranges[p].high / fit.ranges[p].low < 1.1);
    }
    CHECK(fit.trade_offs.empty());
  }
}

TEST_CASE("the same seed gives the same fit") {
  const std::vector<FitParameter> parameters{between("array", 5e-6, 500e-6), between("firmware", 50e-9, 50e-6),
                                             between("channel", 1e8, 5e9)};
  const Values measured = drive({61e-6, 1.7e-6, 0.93e9});
  const Fit a = fit_model(drive, parameters, measured, {.seed = 7}),
            b = fit_model(drive, parameters, measured, {.seed = 7});
  CHECK(a.values == b.values);
  CHECK(a.calls == b.calls);
}

TEST_CASE("a parameter without effect, and one that is only bounded, are told") {
  // The second matters below 3 only; the third never.
  const FitModel model = [](const Values& v) { return Values{v[0], std::min(v[1], 3.0)}; };
  const Fit fit =
      fit_model(model, {between("seen", 0.1, 10), between("bounded", 0.5, 50), between("unseen", 1, 100)}, {2, 3}, {});
  CHECK(fit.values[0] == Approx(2).epsilon(0.01));
  CHECK_FALSE(fit.ranges[0].to_low_end);
  CHECK_FALSE(fit.ranges[0].to_high_end);
  CHECK_FALSE(fit.ranges[1].to_low_end);
  CHECK(fit.ranges[1].low == Approx(3).epsilon(0.1));
  CHECK(fit.ranges[1].to_high_end);
  CHECK(fit.ranges[2].to_low_end);
  CHECK(fit.ranges[2].to_high_end);
}

TEST_CASE("two parameters of which only the product or the sum is seen are told, with what hides what") {
  SECTION("product") {
    const Fit fit = fit_model(
        [](const Values& v) {
          return Values{v[0] * v[1], 5 * v[2]};
        },
        {between("a", 0.1, 10), between("b", 0.1, 10), between("c", 0.1, 10)}, {1, 5}, {});
    REQUIRE(fit.trade_offs.size() == 1);
    CHECK(fit.trade_offs[0].parameter == 0);
    CHECK(fit.trade_offs[0].other == 1);
    CHECK(fit.trade_offs[0].factor * fit.trade_offs[0].other_factor == Approx(1).epsilon(0.02));
    CHECK(std::abs(std::log(fit.trade_offs[0].factor)) > 0.02);
  }
  SECTION("sum, whose parts differ tenfold") {
    const Fit fit = fit_model([](const Values& v) { return Values{v[0] + v[1]}; },
                              {between("a", 30, 300), between("b", 1, 100)}, {80}, {});
    REQUIRE(fit.trade_offs.size() == 1);
    const auto moved = [&](std::size_t p, double factor) { return fit.values[p] * (factor - 1); };
    const FitTradeOff& t = fit.trade_offs[0];
    CHECK(std::abs(moved(t.parameter, t.factor) + moved(t.other, t.other_factor)) < 0.03 * 80);
  }
}

TEST_CASE("choices are tried one by one, and those that fit as well are told") {
  const FitModel model = [](const Values& v) { return Values{v[0] / v[1], v[0]}; };
  const Fit fit = fit_model(model, {between("time", 1, 100), one_of("dies", {1, 2, 4, 8})}, {3, 12}, {});
  CHECK(fit.values[1] == 4);
  CHECK(fit.candidates.size() == 4);
  CHECK(fit.ranges[1].low == 4);
  CHECK(fit.ranges[1].high == 4);
  const Fit same = fit_model([](const Values& v) { return Values{v[0] / v[1]}; },
                             {between("time", 1, 100), one_of("dies", {1, 2, 4, 8})}, {3}, {});
  CHECK(same.ranges[1].low == 1);
  CHECK(same.ranges[1].high == 8);
}

TEST_CASE("values stay inside their ranges, and what the model throws gets out") {
  const FitModel model = [](const Values& v) {
    if (v[0] < 1 || v[0] > 2) throw InternalError("out of range");
    return Values{v[0]};
  };
  CHECK(fit_model(model, {between("a", 1, 2)}, {5}, {}).values[0] == Approx(2).epsilon(0.01));
  std::size_t calls = 0;
  const FitModel fails = [&](const Values& v) {
    if (++calls > 12) throw UserError("the thirteenth");
    return Values{v[0]};
  };
  CHECK_THROWS_WITH(fit_model(fails, {between("a", 1, 200)}, {5}, {}), "the thirteenth");
}

}  // namespace test_fit
