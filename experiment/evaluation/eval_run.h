// `csdsim eval`: the accuracy of attention methods on a checkpoint and a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/generation/processor.h"
#include "host_runtime/core/eval/evaluation.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct EvalSetting {
  host::EvaluatedSetting evaluated;
  /// What the ratio is, where it has a say: the kept share asked for.
  std::optional<Ratio> ratio;
  /// Decoding attention in the drives of this scenario, whose system is the setting's method. Unset: on the host.
  std::optional<scenario::Scenario> drive;
};

struct EvalRequest {
  std::filesystem::path model;                       ///< directory of a checkpoint
  std::filesystem::path text;                        ///< named in the result
  std::optional<std::vector<host::TokenId>> tokens;  ///< unset: `content` is tokenised
  std::string content;                               ///< of the text file
  std::vector<EvalSetting> settings;
  host::EvaluationOptions options;
  /// Whether the selections of the only setting are to be recorded, and of so many decode steps one.
  std::optional<std::uint32_t> record_every;
  host::Processor processor = host::Processor::cpu;  ///< of everything but decoding attention
};

struct EvalResult {
  nlohmann::ordered_json document;  ///< of result.json: metrics, rows
  nlohmann::ordered_json recorded;  ///< the recording, see recorded_selection.h
  std::string failure;              ///< empty, or what is wrong with the run
};

using EvalProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

/// Loads the checkpoint and evaluates. A row whose attention runs in a drive has its perplexity and agreement from
/// there; what attention kept is taken from the same method on the host, which has to give the same perplexity to the
/// last bit. Recall is measured on the host only. UserError for a broken checkpoint, a text that is too short,
/// impossible settings, and methods that the drive has not where it is asked to attend.
EvalResult run_evaluation(const EvalRequest& request, const EvalProgress& progress = {});

}  // namespace csdsim::experiment
