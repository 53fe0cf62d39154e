// Runs with weights in flash: on the small checkpoint, what their tokens are compared with, and scenarios for timing.
#pragma once

#include <catch2/catch.hpp>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/memory/kv_format.h"
#include "experiment/runner.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/features/drafts/drafts.h"
#include "host_runtime/core/features/neurons/neurons.h"
#include "host_runtime/core/systems/llm_in_a_flash/llm_in_a_flash.h"
#include "host_runtime/sysc/sums_on_host.h"
#include "tests/integration/small_model.h"
#include "tests/integration/small_platform.h"

namespace csdsim::test {

/// Decodes with weights on simulated drives.
struct FlashRun {
  FlashRun(const host::OffloadSystem& system, const Prompts& prompts, std::uint32_t new_tokens,
           const host::SamplingOptions& sampling = {}, std::shared_ptr<const host::NeuronPredictor> predictor = {},
           std::uint32_t drives = 1, double kv_share = 0, std::uint32_t mini_batches = 1)
      : setup(setup_of(system, prompts, new_tokens, drives, kv_share, mini_batches)),
        data(*SmallModel::get().decoder, prompts, new_tokens, mini_batches, sampling, experiment::kv_division(setup)),
        predictor_(std::move(predictor)) {
    setup.data = &data;
  }

  static csd_model::DriveConfig drive(double kv_share = 0) {
    csd_model::DriveConfig config = small_drive();
    config.kv_share = kv_share;
    return config;
  }
  static experiment::GenerationSetup setup_of(const host::OffloadSystem& system, const Prompts& prompts,
                                              std::uint32_t new_tokens, std::uint32_t drives, double kv_share,
                                              std::uint32_t mini_batches) {
    experiment::GenerationSetup setup = small_setup(drive(kv_share), prompts, new_tokens, "gpu-only");
    setup.system = system.clone();
    setup.platform.drives = setup.plan.drives = drives;
    setup.plan.carried = true;
    setup.plan.mini_batches = mini_batches;
    return setup;
  }

  const Prompts& tokens(const experiment::GenerationHooks& hooks = {}) {
    neurons();
    outcome = experiment::run_generation(setup, hooks);
    return data.generated();
  }
  /// The feature of the run; the plan is complete.
  const host::Neurons& neurons() {
    const SmallModel& model = SmallModel::get();
    if (data.features()->find<host::Neurons>() == nullptr) {
      host::RunFeatures features = setup.system->features(setup.plan);
      features.find<host::Neurons>()->set_predictor(predictor_);
      data.set_features(std::move(features), {.weights = model.checkpoint.weights.get(),
                                              .sums = host::sums_on_host(setup.platform.drive.nvme.controller.mdts)});
    }
    return *data.features()->find<host::Neurons>();
  }
  const host::TokenDrafts& drafts() const { return *data.features()->find<host::Drafts>()->carried(); }
  experiment::GenerationSetup setup;
  host::DecoderData data;
  experiment::GenerationOutcome outcome;

 private:
  std::shared_ptr<const host::NeuronPredictor> predictor_;
};

inline host::LlmInAFlash system_of(host::FlashTechnique technique) {
  host::LlmInAFlash system;
  system.flash.technique = technique;
  system.flash.memory_share = {1, 1};
  return system;
}

inline Prompts dense(const Prompts& prompts, std::uint32_t new_tokens, const host::SamplingOptions& sampling = {}) {
  return decode_on_host(small_setup(small_drive(), prompts, new_tokens, "gpu-only"), prompts, sampling).tokens;
}

/// A plain loop over the decoder: the networks keep the neurons that `predictor` chose in the last `window` decode
/// steps.
inline Prompts masked(const host::NeuronPredictor& predictor, const Prompts& prompts, std::uint32_t new_tokens,
                      std::size_t window) {
  const host::Decoder& decoder = *SmallModel::get().decoder;
  std::map<std::uint32_t, std::deque<std::set<std::uint32_t>>> last;  // [layer]
  const host::NeuronChoice choice = [&](LayerId layer, std::span<const SequenceId>, const host::Tensor& inputs) {
    auto& steps = last[layer.value];
    steps.emplace_back();
    for (const std::vector<std::uint32_t>& of_sequence : predictor.predict(layer, inputs))
      steps.back().insert(of_sequence.begin(), of_sequence.end());
    if (steps.size() > window) steps.pop_front();
    host::NeuronMasks masks{std::vector<std::uint8_t>(decoder.config().ffn)};
    for (const auto& step : steps)
      for (const std::uint32_t neuron : step) masks.kept[neuron] = 1;
    return std::optional(masks);
  };
  host::HostAttention attention(decoder.config(), host::make_method("dense", {}));
  return host::generate(decoder, attention, prompts, {.max_new_tokens = new_tokens, .sampling = {}, .stop = {}},
                        choice);
}

/// Chooses half of the neurons, whatever they compute.
struct EverySecondNeuron final : host::NeuronPredictor {
  host::ActiveNeurons predict(LayerId layer, const host::Tensor& inputs) const override {
    host::ActiveNeurons chosen(inputs.rows);
    for (std::uint32_t token = 0; token < inputs.rows; ++token)
      for (std::uint32_t neuron = 0; neuron < 1024; ++neuron)
        if (counter_random(layer.value, neuron / 3 + token) % 2 == 0) chosen[token].push_back(neuron);
    return chosen;
  }
};

inline const Prompts kPrompts = {text_prompt(20), text_prompt(9, 300)};
inline scenario::Resolved load_flash(const std::vector<std::string>& sets, const std::string& more) {
  return experiment::load_scenario_text(small_platform("flash") + more, "flash.yaml", CSDSIM_SOURCE_DIR, sets).base;
}

inline const std::string kFlashTiming =
    "model: {layers: 6, heads: 8, kv_heads: 4, head_dim: 64, hidden_size: 512, ffn_size: 2048, vocab_size: 1000, "
    "max_positions: 4096}\n"
    "system: {kind: llm-in-a-flash}\n"
    "workload: {kind: generation, batch: 1, input_tokens: 40, output_tokens: 17}\nsimulation: {sampling: off}\n";

inline nlohmann::ordered_json metrics(const std::vector<std::string>& sets, const std::string& text = kFlashTiming) {
  const scenario::RunResult result = experiment::run_scenario(load_flash(sets, text).scenario);
  CHECK(result.failure.empty());
  return result.document["metrics"];
}

inline std::string refusal(const std::vector<std::string>& sets, const std::string& text = kFlashTiming) {
  try {
    load_flash(sets, text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "accepted";
}

}  // namespace csdsim::test
