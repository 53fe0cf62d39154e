// Feed-forward blocks with predicted neurons on opt-6m: counts, windows, and the locality of real activations.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <set>

#include "base/error.h"
#include "host_runtime/core/eval/neuron_evaluation.h"
#include "host_runtime/core/features/neurons/model/neuron_recording.h"
#include "host_runtime/core/features/neurons/model/neuron_window.h"
#include "tests/host_runtime/opt_6m.h"

namespace test_neuron_evaluation {

using namespace csdsim;
using namespace csdsim::host;
using Catch::Matchers::Contains;
using csdsim::test::opt_6m;

namespace {

constexpr PerplexityOptions kWindows{64, 20, 3};
constexpr std::uint32_t kSteps = 19;  // decoded tokens of a window

/// The oracle's neurons without those whose index is not of `keep`.
class PartOfOracle final : public NeuronPredictor {
 public:
  explicit PartOfOracle(std::function<bool(std::uint32_t)> keep) : oracle_(*opt_6m().decoder), keep_(std::move(keep)) {}
  ActiveNeurons predict(LayerId layer, const Tensor& inputs) const override {
    ActiveNeurons active = oracle_.predict(layer, inputs);
    for (auto& token : active) std::erase_if(token, [&](std::uint32_t neuron) { return !keep_(neuron); });
    return active;
  }

 private:
  OraclePredictor oracle_;
  std::function<bool(std::uint32_t)> keep_;
};

class AllNeurons final : public NeuronPredictor {
 public:
  ActiveNeurons predict(LayerId, const Tensor& inputs) const override {
    std::vector<std::uint32_t> all(opt_6m().checkpoint.config.ffn);
    for (std::uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    return ActiveNeurons(inputs.rows, all);
  }
};

NeuronEvaluation run(const std::vector<NeuronSetting>& settings, std::uint32_t batch = 8, const NeuronHooks& hooks = {},
                     const PerplexityOptions& windows = kWindows) {
  return evaluate_neurons(*opt_6m().decoder, opt_6m().text, settings, windows, batch, hooks);
}

/// What the oracle says for the text, as a recording.
NeuronRecording recorded(const PerplexityOptions& windows) {
  const ModelConfig& config = opt_6m().checkpoint.config;
  NeuronRecording recording{.neurons = config.ffn, .stretches = {}};
  recording.stretches.assign(windows.windows, std::vector<std::vector<NeuronRecording::Active>>(config.layers));
  NeuronHooks hooks;
  hooks.predicted = [&](std::size_t, SequenceId window, LayerId layer, std::span<const std::uint32_t> neurons) {
    recording.stretches[window.value][layer.value].emplace_back(neurons.begin(), neurons.end());
  };
  run({{std::make_shared<OraclePredictor>(*opt_6m().decoder), 1}}, 8, hooks, windows);
  return recording;
}

}  // namespace

TEST_CASE("the oracle's perplexity is that of the dense block, bit for bit, and nothing is missed", "[neurons]") {
  const auto oracle = std::make_shared<OraclePredictor>(*opt_6m().decoder);
  const NeuronEvaluation result = run({{oracle, 1}, {oracle, 4}, {std::make_shared<AllNeurons>(), 1}});
  const ModelConfig& config = opt_6m().checkpoint.config;
  const std::uint64_t all = std::uint64_t{3} * kSteps * config.ffn;
  for (const NeuronRow& row : result.rows) {
    CHECK(row.perplexity == result.dense_perplexity);
    CHECK(row.tokens_scored == 3 * kSteps);
    CHECK(row.greedy_equal == row.tokens_scored);
    CHECK(*row.ratio_spread == 0);
    CHECK(row.perplexity_spread == result.dense_perplexity_spread);
    REQUIRE(row.layers.size() == config.layers);
    for (const NeuronCounts& layer : row.layers) {
      CHECK(layer.neurons == all);
      CHECK(layer.missed == 0);
      CHECK(layer.left_out == 0);
      CHECK(layer.missed_weight == 0);
      CHECK(layer.firing > 0);
      CHECK(layer.active >= layer.predicted);
    }
  }
  for (std::size_t layer = 0; layer < config.layers; ++layer) {
    CHECK(result.rows[0].layers[layer].predicted == result.rows[0].layers[layer].firing);
    CHECK(result.rows[0].layers[layer].active == result.rows[0].layers[layer].predicted);
    CHECK(result.rows[1].layers[layer].active > result.rows[1].layers[layer].predicted);
    CHECK(result.rows[2].layers[layer].predicted == all);
  }
  PerplexityOptions options = kWindows;
  HostAttention attention(config, std::make_unique<DenseAttention>());
  const PerplexityResult plain = perplexity(*opt_6m().decoder, attention, opt_6m().text, options);
  CHECK(result.dense_perplexity == Approx(plain.perplexity).epsilon(2e-3));
}

TEST_CASE("neurons that are not predicted are missed and cost perplexity", "[neurons]") {
  const auto even = std::make_shared<PartOfOracle>([](std::uint32_t neuron) { return neuron % 2 == 0; });
  const auto none = std::make_shared<PartOfOracle>([](std::uint32_t) { return false; });
  const auto most = std::make_shared<PartOfOracle>([](std::uint32_t neuron) { return neuron % 50 != 0; });
  const NeuronEvaluation result = run({{even, 1}, {none, 1}, {most, 1}});
  const NeuronCounts half = result.rows[0].all_layers(), nothing = result.rows[1].all_layers(),
                     nearly = result.rows[2].all_layers();
  CHECK(half.missed + half.predicted == half.firing);
  CHECK(half.missed == half.left_out);
  CHECK(double(half.missed) / double(half.firing) == Approx(0.5).margin(0.1));
  CHECK(half.missed_weight / half.weight == Approx(0.5).margin(0.15));
  CHECK(half.left_out_weight == half.missed_weight);
  CHECK(nothing.predicted == 0);
  CHECK(nothing.active == 0);
  CHECK(nothing.missed == nothing.firing);
  CHECK(nothing.missed_weight == Approx(nothing.weight));
  CHECK(result.rows[1].perplexity > 1.5 * result.dense_perplexity);
  CHECK(result.rows[0].perplexity > 1.05 * result.dense_perplexity);
  CHECK(result.rows[0].perplexity > result.rows[2].perplexity);
  CHECK(result.rows[2].greedy_equal > result.rows[1].greedy_equal);
  CHECK(nearly.missed > 0);
}

TEST_CASE("with a window, neurons predicted for one of the last tokens of the sequence take part", "[neurons]") {
  constexpr std::uint32_t kWindow = 3;
  // The predictions for each token, by window of text and layer; then the union over the last three, by sets.
  std::map<std::pair<SequenceId, LayerId>, std::vector<std::vector<std::uint32_t>>> seen;
  NeuronHooks hooks;
  hooks.predicted = [&](std::size_t, SequenceId window, LayerId layer, std::span<const std::uint32_t> neurons) {
    seen[{window, layer}].emplace_back(neurons.begin(), neurons.end());
  };
  const auto part = std::make_shared<PartOfOracle>([](std::uint32_t neuron) { return neuron % 3 != 0; });
  const NeuronEvaluation result = run({{part, kWindow}}, 2, hooks);
  std::vector<std::uint64_t> active(opt_6m().checkpoint.config.layers), predicted(active);
  for (const auto& [place, tokens] : seen) {
    REQUIRE(tokens.size() == kSteps);
    for (std::size_t token = 0; token < tokens.size(); ++token) {
      std::set<std::uint32_t> together;
      for (std::size_t back = 0; back < kWindow && back <= token; ++back)
        together.insert(tokens[token - back].begin(), tokens[token - back].end());
      active[place.second.value] += together.size();
      predicted[place.second.value] += tokens[token].size();
    }
  }
  CHECK(seen.size() == 3 * active.size());
  for (std::size_t layer = 0; layer < active.size(); ++layer) {
    CHECK(result.rows[0].layers[layer].active == active[layer]);
    CHECK(result.rows[0].layers[layer].predicted == predicted[layer]);
  }
}

TEST_CASE("a window saves what another token's prediction names", "[neurons]") {
  // Only every second prediction of a layer is there at all: with a window of two tokens its neurons stay.
  class EverySecond final : public NeuronPredictor {
   public:
    ActiveNeurons predict(LayerId layer, const Tensor& inputs) const override {
      ActiveNeurons active = oracle_.predict(layer, inputs);
      if (calls_[layer.value]++ % 2 == 1)
        for (auto& token : active) token.clear();
      return active;
    }

   private:
    OraclePredictor oracle_{*opt_6m().decoder};
    mutable std::vector<int> calls_ = std::vector<int>(opt_6m().checkpoint.config.layers);
  };
  const NeuronEvaluation one = run({{std::make_shared<EverySecond>(), 1}}),
                         two = run({{std::make_shared<EverySecond>(), 2}});
  const NeuronCounts alone = one.rows[0].all_layers(), kept = two.rows[0].all_layers();
  CHECK(alone.left_out == alone.missed);
  CHECK(kept.left_out < kept.missed);
  CHECK(two.rows[0].perplexity < one.rows[0].perplexity);
}

TEST_CASE("results depend on the batch only by rounding", "[neurons]") {
  const auto part = std::make_shared<PartOfOracle>([](std::uint32_t neuron) { return neuron % 5 != 0; });
  const NeuronEvaluation together = run({{part, 2}}), single = run({{part, 2}}, 1);
  CHECK(single.rows[0].perplexity == Approx(together.rows[0].perplexity).epsilon(5e-3));
  CHECK(double(single.rows[0].all_layers().firing) ==
        Approx(double(together.rows[0].all_layers().firing)).epsilon(5e-3));
}

TEST_CASE("what a window loads per token is s(k + 1) - s(k) of the checkpoint's own activations", "[neurons]") {
  const NeuronRecording recording = recorded({128, 128, 4});
  constexpr std::uint32_t kMost = 12;
  for (std::uint32_t layer = 0; layer < recording.layers(); ++layer) {
    const std::vector<double> within = active_within(recording, LayerId{layer}, kMost);
    REQUIRE(within.size() == kMost);
    for (const std::uint32_t k : {1u, 2u, 5u, 11u}) {
      CAPTURE(layer, k);
      double loaded = 0, steps = 0;
      for (const auto& stretch : recording.stretches) {
        NeuronWindow window(recording.neurons, k);
        std::size_t token = 0;
        for (const auto& active : stretch[layer]) {
          const std::size_t load = window.step(active).load.size();
          if (token++ < k) continue;  // the window is not full yet
          loaded += static_cast<double>(load);
          ++steps;
        }
      }
      const double expected = within[k] - within[k - 1];
      CHECK(expected > 0);
      // Both are means over the same tokens, but for the places of the first and the last window of a stretch.
      CHECK(loaded / steps / recording.neurons == Approx(expected).epsilon(0.05));
    }
    CHECK(std::is_sorted(within.begin(), within.end()));
  }
}

TEST_CASE("what cannot be evaluated is refused", "[neurons]") {
  const auto oracle = std::make_shared<OraclePredictor>(*opt_6m().decoder);
  CHECK_THROWS_WITH(run({{oracle, 0}}), Contains("window of 0 tokens"));
  CHECK_THROWS_WITH(run({{oracle, 1}}, 8, {}, {64, 8, 4'000'000'000U}), Contains("the text has"));
  CHECK_THROWS_WITH(run({{oracle, 1}}, 8, {}, {2040, 100, 1}), Contains("2048 positions"));
}

}  // namespace test_neuron_evaluation
