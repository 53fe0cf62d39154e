// Implements `csdsim eval`: measures the accuracy of attention methods on a checkpoint and a text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/metric.h"
#include "experiment/checkpoint/processor.h"
#include "host_runtime/checkpoint/checkpoint.h"
#include "host_runtime/core/eval/evaluation.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct EvalSetting {
  host::EvaluatedSetting evaluated;
  /// The requested ratio; unset when the budget is exact.
  std::optional<Ratio> ratio;
  /// Runs decoding attention in the drives of this scenario, whose system has the setting's method. Unset: on the host.
  std::optional<scenario::Scenario> drive;
};

/// A checkpoint and a text.
struct EvalInput {
  std::filesystem::path model;                       ///< checkpoint directory
  std::filesystem::path text;                        ///< name of the text in the result
  std::optional<std::vector<host::TokenId>> tokens;  ///< unset: `content` is tokenised
  std::string content;                               ///< content of the text file
  std::optional<Ratio> fatrelu;                      ///< see ModelConfig
  host::Processor processor = host::Processor::cpu;  ///< computes everything but decoding attention in drives
};

host::Checkpoint checkpoint_of(const EvalInput& input);
std::vector<host::TokenId> tokens_of(const EvalInput& input);

struct EvalRequest : EvalInput {
  std::vector<EvalSetting> settings = {};
  host::EvaluationOptions options = {};
  /// Records the selections of the only setting: those of SparF at one of `record_every` decode steps (16), the tokens
  /// of other methods at every step.
  bool record = false;
  std::optional<std::uint32_t> record_every = {};
  bool nll = false;  ///< EvalResult::nll is wanted
};

struct EvalResult {
  nlohmann::ordered_json document;  ///< content of result.json: metrics, rows
  nlohmann::ordered_json recorded;  ///< the recording, see recorded_selection.h and recorded_tokens.h
  /// Negative log-likelihood of every scored token: rows of method, setting, window, position, token, nll.
  nlohmann::ordered_json nll;
  std::string failure;  ///< why the run is wrong; empty when its checks passed
};

using EvalProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

/// Perplexity with dense attention; the standard error is over the windows.
struct DensePerplexity {
  double value = 0;
  std::optional<double> error = {};        ///< written as null if there is one window
  std::optional<double> unquantised = {};  ///< with weights of 16 bits, where the others have fewer
};
std::vector<Metric<DensePerplexity>> evaluation_metrics();

/// Loads the checkpoint and evaluates the settings. If attention runs in a drive, the row has perplexity and agreement
/// from the drive. Its kept tokens come from the same method on the host, which must give the same perplexity bit for
/// bit. Recall is measured on the host only. Throws UserError for a broken checkpoint, a text that is too short,
/// impossible settings, and methods that the drive does not have.
EvalResult run_evaluation(const EvalRequest& request, const EvalProgress& progress = {});

}  // namespace csdsim::experiment
