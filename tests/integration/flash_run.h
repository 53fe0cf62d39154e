// Runs with weights in flash: on the small checkpoint, and of scenarios for timing.
#pragma once

#include <catch2/catch.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/generation/kv_format.h"
#include "experiment/runner.h"
#include "host_runtime/core/planner/systems/llm_in_a_flash/llm_in_a_flash.h"
#include "tests/integration/small_model.h"
#include "tests/integration/small_platform.h"

namespace csdsim::test {

/// Decodes with weights on simulated drives.
struct FlashRun {
  FlashRun(const host::LlmInAFlash& system, const Prompts& prompts, std::uint32_t new_tokens,
           const host::SamplingOptions& sampling = {}, std::shared_ptr<const host::NeuronPredictor> predictor = {},
           std::uint32_t drives = 1)
      : setup(small_setup(drive(), prompts, new_tokens, "gpu-only")),
        data(*SmallModel::get().decoder, prompts, new_tokens, 1, sampling, experiment::kv_division(setup)) {
    setup.system = system.clone();
    setup.platform.drives = setup.plan.drives = drives;
    setup.plan.carried = true;
    const SmallModel& model = SmallModel::get();
    data.set_neurons(std::make_unique<host::CarriedNeurons>(*setup.system->flash_weights(setup.plan), *model.decoder,
                                                            *model.checkpoint.weights, std::move(predictor)));
    setup.data = &data;
  }

  static csd_model::DriveConfig drive() {
    csd_model::DriveConfig config = small_drive();
    config.kv_share = 0;
    return config;
  }

  const Prompts& tokens(const experiment::GenerationHooks& hooks = {}) {
    outcome = experiment::run_generation(setup, hooks);
    return data.generated();
  }
  experiment::GenerationSetup setup;
  host::DecoderData data;
  experiment::GenerationOutcome outcome;
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
