// Weights in flash for small batches: a layer has one window, of the neurons of all sequences.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <deque>
#include <set>
#include <vector>

#include "host_runtime/core/decoder/generation.h"
#include "tests/integration/flash_run.h"

namespace test_flash_batches {

using namespace csdsim;
using namespace csdsim::test;
using host::FlashTechnique;

namespace {

using Neurons = std::set<std::uint32_t>;

/// The neurons that fire for at least one sequence of the batch, by layer and decode step: from decoding in memory.
std::vector<std::vector<Neurons>> fired(const Prompts& prompts, std::uint32_t new_tokens) {
  const host::Decoder& decoder = *SmallModel::get().decoder;
  const host::OraclePredictor oracle(decoder);
  std::vector<std::vector<Neurons>> all(decoder.config().layers);
  const host::NeuronChoice choice = [&](LayerId layer, std::span<const SequenceId>, const host::Tensor& inputs) {
    Neurons& of_step = all[layer.value].emplace_back();
    for (const std::vector<std::uint32_t>& of_sequence : oracle.predict(layer, inputs))
      of_step.insert(of_sequence.begin(), of_sequence.end());
    return std::optional<host::NeuronMasks>{};
  };
  host::HostAttention attention(decoder.config(), host::make_method("dense", {}));
  host::generate(decoder, attention, prompts, {.max_new_tokens = new_tokens, .sampling = {}, .stop = {}}, choice);
  return all;
}

/// Neurons that a window of `window` steps loads, counted with sets.
std::uint64_t loads(const std::vector<Neurons>& steps, std::size_t window) {
  std::uint64_t loaded = 0;
  for (std::size_t step = 0; step < steps.size(); ++step) {
    Neurons kept;
    for (std::size_t i = step - std::min(step, window); i < step; ++i) kept.insert(steps[i].begin(), steps[i].end());
    loaded += static_cast<std::uint64_t>(
        std::ranges::count_if(steps[step], [&](std::uint32_t neuron) { return !kept.contains(neuron); }));
  }
  return loaded;
}

const Prompts kPrompts = {text_prompt(20), text_prompt(9, 300), text_prompt(14, 500)};

}  // namespace

TEST_CASE("a batch has the tokens of dense decoding and loads the union of its sequences") {
  constexpr std::uint32_t kTokens = 14;
  for (const std::size_t batch : {1, 2, 3}) {
    const Prompts prompts(kPrompts.begin(), kPrompts.begin() + static_cast<std::ptrdiff_t>(batch));
    const Prompts expected = dense(prompts, kTokens);
    const std::vector<std::vector<Neurons>> neurons = fired(prompts, kTokens);
    for (const std::uint32_t window : {1u, 4u}) {
      CAPTURE(batch, window);
      host::LlmInAFlash system = system_of(FlashTechnique::bundling);
      system.flash.window = window;
      FlashRun run(system, prompts, kTokens);
      CHECK(run.tokens() == expected);
      std::uint64_t counted = 0;
      for (const std::vector<Neurons>& layer : neurons) counted += loads(layer, window);
      CHECK(run.neurons().in_memory()->loaded() == counted);
    }
  }
}

TEST_CASE("what a batch loads per step is s(k + 1) - s(k) of the union of its sequences") {
  constexpr std::uint32_t kWindow = 3, kSteps = 99;
  double before = 0;
  for (const std::uint32_t batch : {1u, 2u, 4u}) {
    const auto m = metrics({"workload.batch=" + std::to_string(batch), "system.window=" + std::to_string(kWindow),
                            "workload.output_tokens=" + std::to_string(kSteps + 1), "system.memory_share=1"});
    const host::FlashOptions defaults = host::FlashParameters{}.options();
    const host::LocalityModel model(defaults.locality, 2048, 1);
    double expected = 0;
    for (std::uint32_t step = 0; step < kSteps; ++step) {
      const std::uint32_t kept = std::min(step, kWindow);
      expected += model.active_within(kept + 1, batch) - model.active_within(kept, batch);
    }
    const double loaded = m["neurons_loaded_per_step"];
    CHECK(loaded == Approx(6 * 2048 * expected / kSteps).epsilon(0.04));
    // Sequences share neurons: a larger batch loads more per step, and less per token.
    CHECK(loaded > before);
    if (before > 0) CHECK(loaded < 2 * before);
    before = loaded;
  }
}

}  // namespace test_flash_batches
