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

#include "csd_model/scenario/scenario.h"
#include "host_runtime/core/eval/evaluation.h"

namespace csd_model {

struct EvalSetting {
  csdsim::host::EvaluatedSetting evaluated;
  /// What the ratio is, where it has a say: the kept share asked for.
  std::optional<csdsim::Ratio> ratio;
};

struct EvalRequest {
  std::filesystem::path model;                               ///< directory of a checkpoint
  std::filesystem::path text;                                ///< named in the result
  std::optional<std::vector<csdsim::host::TokenId>> tokens;  ///< unset: `content` is tokenised
  std::string content;                                       ///< of the text file
  std::vector<EvalSetting> settings;
  csdsim::host::EvaluationOptions options;
  /// Selections of the settings' SparQ or SparF rows are written here; exactly one setting then has some.
  std::optional<std::filesystem::path> record;
  std::uint32_t record_every = 16;  ///< of so many decode steps one is recorded
  /// A scenario whose platform the evaluation runs on: decoding attention in the drive. Unset: on the host.
  const csdsim::scenario::Scenario* drive = nullptr;
};

struct EvalResult {
  nlohmann::ordered_json document;  ///< of result.json: metrics, rows
  std::string failure;              ///< empty, or what is wrong with the run
};

using EvalProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

/// Loads the checkpoint and evaluates. UserError for a broken checkpoint, a text that is too short, impossible
/// settings, and methods that the drive has not where it is asked to attend.
EvalResult run_evaluation(const EvalRequest& request, const EvalProgress& progress = {});

}  // namespace csd_model
