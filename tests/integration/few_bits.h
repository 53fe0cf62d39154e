// Runs of drives that keep K and V of few bits, and what the host makes of the same rounded values.
#pragma once

#include <catch2/catch.hpp>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "contracts/row_quantisation.h"
#include "experiment/checkpoint/loaded_model.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/runner.h"
#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/eval/rounded_kv.h"
#include "tests/integration/small_model.h"
#include "tests/integration/small_platform.h"

namespace csdsim::test {

using Sets = std::vector<std::string>;
using Tokens = std::vector<std::vector<host::TokenId>>;

inline scenario::Scenario load_few_bits(const std::string& text, const Sets& sets) {
  return experiment::load_scenario_text(small_platform("few-bits") + text, "few_bits.yaml", CSDSIM_SOURCE_DIR, sets)
      .base.scenario;
}

/// Pages of 1 KiB, of which prompts fill some: the integers come from flash.
inline scenario::Scenario carried_few_bits(const std::string& model, Sets sets) {
  sets.insert(sets.begin(), "platform.device.flash.page_size=1 KiB");
  return load_few_bits("model: {path: models/" + model +
                           "}\nworkload: {kind: generation, batch: 3, input_tokens: 70, output_tokens: 10}\n"
                           "simulation: {data: carried, compare: [host]}\n",
                       sets);
}

/// What `method` on the host makes of the prompts of a scenario, over K and V that are rounded to a format.
inline Tokens rounded_tokens(const std::string& model, const scenario::Scenario& s, const RowQuantisation& format,
                             std::unique_ptr<host::AttentionMethod> method = std::make_unique<host::DenseAttention>()) {
  const SmallModel small("models/" + model);
  const host::ModelConfig& config = small.checkpoint.config;
  host::HostAttention attention(config, std::move(method));
  host::RoundedKv rounded(attention, format, config.head_dim);
  const auto& workload = experiment::generation_of(s);
  return host::generate(*small.decoder, rounded, experiment::make_prompts(workload, config.vocab, s.seed),
                        {.max_new_tokens = workload.output_tokens, .sampling = {}, .stop = {}});
}

inline Tokens tokens_of(const scenario::RunResult& result) {
  Tokens all;
  for (const auto& sequence : result.document["tokens"]) {
    auto& tokens = all.emplace_back();
    for (const auto& token : sequence) tokens.emplace_back(token.get<std::uint32_t>());
  }
  return all;
}

/// Runs, and compares with the host over the values that were carried.
inline scenario::RunResult run_checked(const scenario::Scenario& s) {
  scenario::RunOptions options;
  options.logprobs = 2;
  scenario::RunResult result = experiment::run_scenario(s, options);
  CHECK(result.failure.empty());
  CHECK(result.document["comparison"]["host"]["tokens_equal"] == 30);
  CHECK(result.document["comparison"]["host"]["attention_outputs_identical"] == true);
  return result;
}

}  // namespace csdsim::test
