// Implements `csdsim eval --predictor`: the quality of feed-forward blocks that run with predicted neurons.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ratio.h"
#include "contracts/row_quantisation.h"
#include "experiment/checkpoint/processor.h"
#include "experiment/evaluation/eval_run.h"
#include "host_runtime/core/decoder/generation.h"

namespace csdsim::experiment {

struct NeuronRequest : EvalInput {
  std::optional<std::filesystem::path> predictor = {};  ///< unset: the oracle
  RowQuantisation quantisation = {};                    ///< quantisation of the feed-forward networks
  std::vector<Ratio> thresholds = {};                   ///< thresholds of the predictor; empty: 1/2
  /// Ranks of the predictor to evaluate, each with one rank for all layers or one per layer; empty: that of its file.
  std::vector<std::vector<std::uint32_t>> ranks = {};
  std::uint32_t window = 1;              ///< tokens whose neurons stay in memory
  host::PerplexityOptions windows = {};  ///< windows of the text
  std::uint32_t batch = 8;               ///< windows of text that run together
  bool record = false;                   ///< records the predicted neurons of the only setting
};

/// Loads the checkpoint and evaluates each rank with each threshold. With quantised networks, the result also says what
/// they cost against those of the checkpoint. The result has metrics and rows, and the recording
/// of recorded_neurons.h. Throws UserError for a broken checkpoint or predictor, a network whose neurons all fire
/// (gated without FATReLU), a text that is too short, and impossible settings.
EvalResult run_neuron_evaluation(const NeuronRequest& request, const EvalProgress& progress = {});

}  // namespace csdsim::experiment
