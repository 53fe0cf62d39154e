// Recorded neurons: s(k) against its definition, the replay, and the fit of the locality model.
#include <catch2/catch.hpp>
#include <set>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/features/neurons/model/locality_fit.h"
#include "host_runtime/core/features/neurons/model/neuron_recording.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"

namespace test_neuron_recording {

using namespace csdsim;
using namespace csdsim::host;

namespace {

using Tokens = std::vector<NeuronRecording::Active>;

/// Tokens in which neurons stay active for a while.
Tokens draw(std::uint64_t seed, std::uint32_t neurons, std::size_t tokens) {
  LocalityModel model({.active = 0.2, .concentration = 1, .persistence = 0.5}, neurons, seed);
  Tokens all(tokens);
  for (auto& active : all) model.next(SequenceId{0}, LayerId{0}, active);
  return all;
}

}  // namespace

TEST_CASE("s(k) is the mean share of the neurons that occur within k tokens, over all places", "[neurons]") {
  const std::uint32_t neurons = GENERATE(1, 7, 40);
  const Tokens tokens = draw(neurons, neurons, 23);
  const std::vector<double> within = active_within(tokens, neurons, 30);
  REQUIRE(within.size() == 23);
  for (std::size_t k = 1; k <= 23; ++k) {
    double sum = 0;
    for (std::size_t first = 0; first + k <= tokens.size(); ++first) {
      std::set<std::uint32_t> seen;
      for (std::size_t i = first; i < first + k; ++i) seen.insert(tokens[i].begin(), tokens[i].end());
      sum += static_cast<double>(seen.size());
    }
    CHECK(within[k - 1] == Approx(sum / static_cast<double>((tokens.size() - k + 1) * neurons)).margin(1e-12));
  }
  CHECK(active_within(Tokens{}, neurons, 5).empty());
}

TEST_CASE("over the same windows, what is loaded is exactly s(k + 1) - s(k)", "[neurons]") {
  constexpr std::uint32_t kNeurons = 60;
  const Tokens tokens = draw(2, kNeurons, 50);
  for (const std::uint32_t k : {1u, 3u, 10u}) {
    NeuronWindow window(kNeurons, k);
    double loaded = 0;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const std::size_t load = window.step(tokens[i]).load.size();
      if (i >= k) loaded += static_cast<double>(load);
    }
    // Each window of k + 1 tokens has one of k before its last token: all places of k tokens but the last one.
    const auto all_but_last = std::span(tokens).first(tokens.size() - 1);
    const double steps = static_cast<double>(tokens.size() - k);
    CHECK(loaded / steps / kNeurons ==
          Approx(active_within(tokens, kNeurons, k + 1)[k] - active_within(all_but_last, kNeurons, k)[k - 1]));
  }
}

TEST_CASE("means over stretches and layers", "[neurons]") {
  const NeuronRecording recording{.neurons = 4, .stretches = {{{{0}, {1}}, {{}, {}}}, {{{0, 1}, {0, 1}}, {{2}, {2}}}}};
  CHECK(recording.layers() == 2);
  CHECK(active_within(recording, LayerId{0}, 9) == std::vector<double>{0.375, 0.5});
  CHECK(active_within(recording, LayerId{1}, 1) == std::vector<double>{0.125});
  CHECK(active_within(recording, 2) == std::vector<double>{0.25, 0.3125});
  CHECK(active_within(NeuronRecording{}, 2).empty());
}

TEST_CASE("a replay gives the recorded tokens, one stretch after another, for any layer and sequence", "[neurons]") {
  RecordedActivity activity({.neurons = 9, .stretches = {{{{1}, {2}}, {{3}, {4}}}, {{{5}, {6}}, {{7}, {8}}}}});
  const auto next = [&](std::uint32_t sequence, std::uint32_t layer) {
    std::vector<std::uint32_t> active{99};
    activity.next(SequenceId{sequence}, LayerId{layer}, active);
    REQUIRE(active.size() == 1);
    return active[0];
  };
  for (const std::uint32_t expected : {1u, 2u, 5u, 6u, 1u}) CHECK(next(0, 0) == expected);
  for (const std::uint32_t expected : {7u, 8u, 3u, 4u}) CHECK(next(1, 1) == expected);
  for (const std::uint32_t expected : {3u, 4u}) CHECK(next(2, 3) == expected);  // layer 3 of a recording with two
  CHECK_THROWS_AS(RecordedActivity({.neurons = 9, .stretches = {}}), UserError);
  CHECK_THROWS_AS(RecordedActivity({.neurons = 9, .stretches = {{{{1}}, {}}}}), UserError);
}

TEST_CASE("the fit finds the constants of the model that the shares are from", "[neurons]") {
  const LocalityParams truth = GENERATE(LocalityParams{.active = 0.1, .concentration = 0.8, .persistence = 0.3},
                                        LocalityParams{.active = 0.03, .concentration = 5, .persistence = 0.7},
                                        LocalityParams{.active = 0.3, .concentration = 0.3, .persistence = 0});
  const LocalityModel model(truth, 4096, 1);
  std::vector<double> shares;
  for (std::uint32_t k = 1; k <= 32; ++k) shares.push_back(model.active_within(k));
  const LocalityFit fit = fit_locality(shares);
  CHECK(fit.worst < 0.01);
  CHECK(fit.params.active == Approx(truth.active).epsilon(0.01));
  CHECK(fit.params.concentration == Approx(truth.concentration).epsilon(0.1));
  CHECK(fit.params.persistence == Approx(truth.persistence).margin(0.03));
  CHECK_THROWS_AS(fit_locality(std::vector<double>{0.5}), UserError);
  CHECK_THROWS_AS(fit_locality(std::vector<double>{0.0, 0.0}), UserError);
  CHECK_THROWS_AS(fit_locality(std::vector<double>{1.0, 1.0}), UserError);
}

}  // namespace test_neuron_recording
