// Importance scores in low precision choose one set of tokens per layer, or one set per head.
#pragma once

#include "base/token_score.h"
#include "host_runtime/core/attention.h"

namespace csdsim::host {

using csdsim::quantise;
using csdsim::ScoreAggregate;
using csdsim::ScorePrecision;

struct ImportanceOptions {
  TokenBudget tokens = 128;  ///< tokens attended to, the current one included; at least 1
  std::uint32_t bits = 8;    ///< of a key component: 8 or 4
  ScoreAggregate aggregate = ScoreAggregate::sum_raw;
};

/// Importance of HillInfer (docs/algorithms.md, HillInfer scoring): imp[j] = sum over heads of q . k[j], neither scaled
/// nor exponentiated, in integers: q is symmetric INT8 with one scale per query head, k is symmetric INT8 or INT4 with
/// one scale per token and head. The k best tokens and the current one are attended to with their fp16 keys and values.
class ImportanceAttention final : public AttentionMethod {
 public:
  /// UserError if the budget is 0 or bits is neither 8 nor 4.
  explicit ImportanceAttention(const ImportanceOptions& options, std::string_view name = "importance");
  std::string_view name() const override { return name_; }
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) override;
  void forget(SequenceId sequence) override { states_.forget(sequence); }

 private:
  struct State {
    std::vector<std::int8_t> keys;  ///< [tokens][d]
    std::vector<float> scales;      ///< [tokens]
  };

  ImportanceOptions options_;
  std::string_view name_;
  HeadStates<State> states_;
};

}  // namespace csdsim::host
