// The locality model of active neurons against its closed form.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "host_runtime/core/features/neurons/model/locality_model.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"

namespace test_locality_model {

using namespace csdsim;
using namespace csdsim::host;

TEST_CASE("what a window loads per token is s(k + 1) - s(k)", "[neurons]") {
  const auto [active, concentration, persistence] =
      GENERATE(std::tuple{0.1, 0.5, 0.0}, std::tuple{0.1, 2.0, 0.6}, std::tuple{0.3, 50.0, 0.3});
  const std::uint32_t tokens = GENERATE(1, 4, 10);
  CAPTURE(active, concentration, persistence, tokens);
  constexpr std::uint32_t kNeurons = 4096;
  LocalityModel model({active, concentration, persistence}, kNeurons, 11);
  NeuronWindow window(kNeurons, tokens);

  double loaded = 0, firing = 0, held = 0;
  std::vector<std::uint32_t> now;
  constexpr std::uint32_t kWarmUp = 20, kSteps = 200;
  for (std::uint32_t step = 0; step < kWarmUp + kSteps; ++step) {
    model.next(SequenceId{0}, LayerId{0}, now);
    const auto& change = window.step(now);
    if (step < kWarmUp) continue;
    loaded += static_cast<double>(change.load.size());
    firing += static_cast<double>(now.size());
    held += window.size();
  }
  const double all = double{kNeurons} * kSteps;
  CHECK(firing / all == Approx(active).epsilon(0.02));
  CHECK(held / all == Approx(model.active_within(tokens)).epsilon(0.02));
  CHECK(loaded / all == Approx(model.active_within(tokens + 1) - model.active_within(tokens)).epsilon(0.03));
}

TEST_CASE("equal neurons without persistence are independent draws", "[neurons]") {
  const LocalityModel model({.active = 0.1, .concentration = 1e6, .persistence = 0}, 1000, 1);
  CHECK(model.active_within(0) == 0);
  CHECK(model.active_within(1) == Approx(0.1).epsilon(1e-6));
  CHECK(model.active_within(5) == Approx(1 - std::pow(0.9, 5)).epsilon(1e-4));
}

TEST_CASE("layers and sequences differ, runs of one seed do not", "[neurons]") {
  const LocalityParams params{.active = 0.2, .concentration = 1, .persistence = 0.5};
  LocalityModel one(params, 500, 3), same(params, 500, 3), other(params, 500, 4);
  std::vector<std::uint32_t> a, b, c;
  one.next(SequenceId{0}, LayerId{0}, a);
  same.next(SequenceId{1}, LayerId{0}, c);  // the order of requests has no effect
  same.next(SequenceId{0}, LayerId{0}, b);
  CHECK(a == b);
  CHECK(a != c);
  other.next(SequenceId{0}, LayerId{0}, b);
  CHECK(a != b);
  one.next(SequenceId{0}, LayerId{1}, b);
  CHECK(a != b);
}

TEST_CASE("constants out of range are refused", "[neurons]") {
  CHECK_THROWS_AS(LocalityModel({.active = 0}, 8, 1), UserError);
  CHECK_THROWS_AS(LocalityModel({.active = 1}, 8, 1), UserError);
  CHECK_THROWS_AS(LocalityModel({.active = 0.5, .concentration = 0}, 8, 1), UserError);
  CHECK_THROWS_AS(LocalityModel({.active = 0.0001, .concentration = 0.001}, 100, 1), UserError);
  CHECK_THROWS_AS(LocalityModel({.active = 0.5, .concentration = 1, .persistence = 1}, 8, 1), UserError);
}

}  // namespace test_locality_model
