// Measures the quality that an attention method costs, on a text with a real decoder.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "contracts/row_quantisation.h"
#include "host_runtime/core/attention/attention_methods.h"
#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/core/eval/recall.h"
#include "host_runtime/core/eval/spread.h"
#include "host_runtime/core/eval/teacher_forcing.h"

namespace csdsim::host {

struct EvaluationOptions {
  PerplexityOptions windows;  ///< the protocol of perplexity()
  RecallOptions recall;       ///< no distances: no recall. One trial per window; the filler is the window's prefill
  QueryPrecision precision = QueryPrecision::f16;
  /// Attention where the decoder's backend computes (Backend::make_attention()); else on the host's processor.
  bool attention_on_backend = false;
  std::uint32_t batch = 8;  ///< windows that run together; results depend on it only by rounding
};

struct EvaluatedSetting {
  std::string method;
  MethodSettings settings;
  RowQuantisation kv = {};  ///< how K and V are kept; quantised ones are attended to on the host's processor
};

/// Shares and counts of the answer tokens of all trials at one distance.
struct RecallPoint {
  std::uint32_t distance = 0;
  std::uint64_t asked = 0;
  std::uint64_t recalled = 0;
};

/// Means are over windows, decode steps, layers and heads.
struct EvaluationRow {
  std::string method;
  std::string setting;
  double perplexity = 0;  ///< exp of the mean negative log-likelihood
  Spread perplexity_spread;
  /// Spread of perplexity / dense_perplexity, from the differences to dense attention in each window: difficulty of the
  /// text, which affects both, cancels.
  Spread ratio_spread;
  std::vector<std::vector<double>> nll;  ///< negative log-likelihood, [window][scored token]
  std::uint64_t tokens_scored = 0;
  std::uint64_t greedy_equal = 0;  ///< scored positions at which the likeliest token is that of dense attention
  /// Attention mass kept, as the method estimates it: SparQ's and SparF's alpha, which is approximate. Equal to
  /// mass_mean for the other methods.
  double alpha_mean = 0;
  double mass_mean = 0;  ///< exact softmax mass of a query head on the tokens that it attended to
  double kept_mean = 0;  ///< tokens attended to over tokens in the cache
  /// Bytes read over those that dense attention reads with elements of 16 bits (HeadSelection::elements, in the
  /// format of K and V; of few bits, components are integers with a scale per token and group that they are in).
  double traffic_mean = 0;
  /// HeadSelection::recall: share of the tokens chosen by exact scores that were chosen. Unset if nothing was compared.
  std::optional<double> top_k_recall;
  std::vector<RecallPoint> recall;
  Spread recall_spread;  ///< spread of the share recalled over all distances
};

struct EvaluationResult {
  double dense_perplexity = 0;
  Spread dense_perplexity_spread;
  std::vector<std::vector<TokenId>> dense_greedy;  ///< [window][decode - 1]
  std::vector<EvaluationRow> rows;                 ///< by setting
};

struct EvaluationHooks {
  /// After each batch of a setting.
  std::function<void(std::size_t done, std::size_t total)> progress;
  /// Called with the selections of setting `index`, once per decode step, layer and KV head; `tokens` is the number in
  /// the cache.
  std::function<void(std::size_t index, SequenceId window, LayerId, KvHead, std::uint32_t tokens, const HeadSelection&)>
      selected;
};

/// Evaluates every setting. Dense attention runs as well, as the reference for greedy tokens. UserError as
/// window_count(), recall_trial() and configure_method().
EvaluationResult evaluate(const Decoder& decoder, std::span<const TokenId> text,
                          const std::vector<EvaluatedSetting>& settings, const EvaluationOptions& options,
                          const EvaluationHooks& hooks = {});

}  // namespace csdsim::host
