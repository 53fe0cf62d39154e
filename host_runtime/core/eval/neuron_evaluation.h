// Measures the quality that it costs to run feed-forward blocks with the neurons that a predictor names.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "host_runtime/core/eval/spread.h"
#include "host_runtime/core/eval/teacher_forcing.h"
#include "host_runtime/core/features/neurons/model/neuron_predictor.h"

namespace csdsim::host {

struct NeuronSetting {
  std::shared_ptr<const NeuronPredictor> predictor;
  /// The neurons that take part are those predicted for at least one of this many last tokens of the sequence, the
  /// current one included: what a runtime has in memory. 1: of the current token alone.
  std::uint32_t window = 1;
};

/// Sums over decoded tokens in one layer. Predictions are compared with the neurons that fire for the same inputs.
struct NeuronCounts {
  std::uint64_t neurons = 0;    ///< tokens * neurons of the layer
  std::uint64_t firing = 0;     ///< activation not 0
  std::uint64_t predicted = 0;  ///< for the token itself
  std::uint64_t missed = 0;     ///< firing, not predicted: false negatives
  std::uint64_t active = 0;     ///< take part: predicted within the window
  std::uint64_t left_out = 0;   ///< firing, not active: what costs quality
  double weight = 0;            ///< absolute activations of the neurons that fire
  double missed_weight = 0;
  double left_out_weight = 0;

  NeuronCounts& operator+=(const NeuronCounts& other);
};

struct NeuronRow {
  double perplexity = 0;
  Spread perplexity_spread;
  Spread ratio_spread;  ///< spread of perplexity / that of the dense block, over the windows of text
  std::uint64_t tokens_scored = 0;
  std::uint64_t greedy_equal = 0;  ///< scored positions at which the likeliest token is that of the dense block
  std::vector<NeuronCounts> layers;

  NeuronCounts all_layers() const;
};

struct NeuronEvaluation {
  double dense_perplexity = 0;
  Spread dense_perplexity_spread;
  std::vector<NeuronRow> rows;  ///< by setting
};

struct NeuronHooks {
  /// After each batch of a setting.
  std::function<void(std::size_t done, std::size_t total)> progress;
  /// The predictions of setting `index` for the next token of a window of text in a layer; tokens are in order.
  std::function<void(std::size_t index, SequenceId window, LayerId, std::span<const std::uint32_t> predicted)>
      predicted;
};

/// Evaluates every setting by teacher forcing with dense attention. The prefill of a window of text runs whole
/// feed-forward blocks, and the windows over tokens start empty after it; the tokens that are fed one by one run
/// with masks. `batch` windows of text run together. UserError as window_count(), and for a window of 0 tokens.
NeuronEvaluation evaluate_neurons(const Decoder& decoder, std::span<const TokenId> text,
                                  const std::vector<NeuronSetting>& settings, const PerplexityOptions& windows,
                                  std::uint32_t batch, const NeuronHooks& hooks = {});

}  // namespace csdsim::host
