// The locality model of important tokens: exact counts, closed forms, and the fit.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>
#include <vector>

#include "base/error.h"
#include "base/ratio.h"
#include "host_runtime/core/features/token_pools/model/token_locality.h"
#include "host_runtime/core/features/token_pools/model/token_locality_fit.h"

namespace test_token_locality {

using namespace csdsim;
using namespace csdsim::host;

namespace {

using Positions = std::vector<std::uint32_t>;

/// Steps of one context that grows.
TokenRecording drawn(const TokenLocalityParams& params, std::uint32_t prefill, std::uint32_t steps, double share) {
  TokenRecording shape{.prefill = prefill, .windows = {{{TokenRecording::Steps(steps)}}}};
  for (std::uint32_t step = 0; step < steps; ++step)
    shape.windows[0][0][0][step].resize(static_cast<std::size_t>(share * shape.context(step)));
  return model_recording(shape, params, 5);
}

}  // namespace

TEST_CASE("as many tokens as are asked for, ascending, the current one among them", "[tokens]") {
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "token locality");
    const TokenLocalityParams params{.recent = 0.05 + 0.9 * rng.unit(),
                                     .concentration = std::exp(6 * rng.unit() - 3),
                                     .persistence = 0.95 * rng.unit(),
                                     .drift = 0.1 * rng.unit()};
    TokenLocalityModel model(params, seed);
    std::uint32_t context = 1 + static_cast<std::uint32_t>(rng.below(300));
    Positions positions{7};
    for (int step = 0; step < 60; ++step, context += static_cast<std::uint32_t>(rng.below(3))) {
      // Every other share costs the quantiles of its distributions.
      const Ratio share = std::array{Ratio{0, 1}, Ratio{1, 10}, Ratio{1, 2}, Ratio{1, 1}}[rng.below(4)];
      const auto count = std::max(1U, static_cast<std::uint32_t>(share.floor_of(context)));
      model.next(SequenceId{1}, LayerId{2}, context, count, positions);
      REQUIRE(positions.size() == count);
      REQUIRE(positions.back() == context - 1);
      REQUIRE(std::set<std::uint32_t>(positions.begin(), positions.end()).size() == count);
      REQUIRE(std::is_sorted(positions.begin(), positions.end()));
    }
  }
}

TEST_CASE("layers and sequences differ, runs of one seed do not", "[tokens]") {
  TokenLocalityModel one({}, 3), same({}, 3), other({}, 4);
  Positions a, b, c;
  one.next(SequenceId{0}, LayerId{0}, 200, 40, a);
  same.next(SequenceId{1}, LayerId{0}, 200, 40, c);  // the order of requests has no effect
  same.next(SequenceId{0}, LayerId{0}, 200, 40, b);
  CHECK(a == b);
  CHECK(a != c);
  other.next(SequenceId{0}, LayerId{0}, 200, 40, b);
  CHECK(a != b);
  one.next(SequenceId{0}, LayerId{1}, 200, 40, b);
  CHECK(a != b);
}

TEST_CASE("equal tokens without persistence overlap as independent draws do", "[tokens]") {
  const ShareProducts equal = share_products(0.2, 0.5, 1e6);
  CHECK(equal.old == Approx(0.125));
  CHECK(equal.old_old == Approx(0.125 * 0.125).epsilon(1e-3));
  // 200 of 1,000 tokens are recent, of which 100 are important, and 800 are old: one step before, 199 are recent in
  // both, one has become old, and the current one did not exist.
  const double expected = (199 * 0.25 + 0.5 * 0.125 + 799 * 0.125 * 0.125) / 200;
  CHECK(expected_overlap(equal, 0, 0, 0.2, 1000, 1) == Approx(expected).epsilon(1e-3));
  // Tokens that keep their state overlap wholly, but for those that did not exist.
  CHECK(expected_overlap(equal, 1, 0, 0.2, 1000, 8) == Approx((192 * 0.5 + 8 * 0.5 + 792 * 0.125) / 200).epsilon(1e-3));
}

TEST_CASE("the tokens drawn overlap, and are recent, as the closed form says", "[tokens]") {
  const TokenLocalityParams params =
      GENERATE(TokenLocalityParams{.recent = 0.5, .concentration = 4, .persistence = 0.25, .drift = 0.05},
               TokenLocalityParams{.recent = 0.55, .concentration = 0.3, .persistence = 0.15, .drift = 0.001},
               TokenLocalityParams{.recent = 0.3, .concentration = 1, .persistence = 0.6, .drift = 0.01});
  constexpr double kShare = 0.2;
  const TokenStatistics found = statistics(drawn(params, 4000, 160, kShare));
  const ShareProducts products = share_products(kShare, params.recent, params.concentration);
  CAPTURE(params.concentration);
  CHECK(found.share == Approx(kShare).margin(1e-3));
  CHECK(found.recent == Approx(params.recent).margin(0.03));
  for (std::size_t i = 0; i < 3; ++i)
    CHECK(found.overlap[i] ==
          Approx(expected_overlap(products, params.persistence, params.drift, kShare, 4080, kOverlapSteps[i]))
              .margin(0.03));
}

TEST_CASE("the fit finds constants with which the model overlaps as recorded", "[tokens]") {
  const TokenLocalityParams truth =
      GENERATE(TokenLocalityParams{.recent = 0.5, .concentration = 4, .persistence = 0.25, .drift = 0.05},
               TokenLocalityParams{.recent = 0.55, .concentration = 0.3, .persistence = 0.15, .drift = 0.001});
  const TokenRecording recording = drawn(truth, 3000, 120, 0.2);
  const TokenLocalityParams fitted = fit_token_locality(recording);
  CAPTURE(fitted.concentration, fitted.persistence, fitted.drift);
  CHECK(fitted.concentration == Approx(truth.concentration).epsilon(0.4));
  CHECK(fitted.persistence == Approx(truth.persistence).margin(0.1));
  CHECK(fitted.drift == Approx(truth.drift).margin(0.015));
  const TokenStatistics recorded = statistics(recording), again = statistics(model_recording(recording, fitted, 9));
  for (std::size_t i = 0; i < 3; ++i) {
    CHECK(again.overlap[i] == Approx(recorded.overlap[i]).margin(0.02));
    CHECK(again.hits[i] == Approx(recorded.hits[i]).margin(0.03));  // not fitted
  }
}

TEST_CASE("constants out of range, and recordings that say nothing, are refused", "[tokens]") {
  CHECK_THROWS_AS(TokenLocalityModel({.recent = 0}, 1), UserError);
  CHECK_THROWS_AS(TokenLocalityModel({.recent = 1}, 1), UserError);
  CHECK_THROWS_AS(TokenLocalityModel({.concentration = 0}, 1), UserError);
  CHECK_THROWS_AS(TokenLocalityModel({.persistence = 1}, 1), UserError);
  CHECK_THROWS_AS(TokenLocalityModel({.drift = -0.1}, 1), UserError);
  Positions positions;
  CHECK_THROWS_AS(TokenLocalityModel({}, 1).next(SequenceId{0}, LayerId{0}, 5, 6, positions), InternalError);
  CHECK_THROWS_AS(fit_token_locality(drawn({}, 100, 8, 0.2)), UserError);
  CHECK_THROWS_AS(fit_token_locality(drawn({}, 100, 20, 1.0)), UserError);
}

}  // namespace test_token_locality
