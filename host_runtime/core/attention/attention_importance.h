// Importance scores, also in low precision, choose one set of tokens per layer, or one set per head.
#pragma once

#include "contracts/token_score.h"
#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

using csdsim::quantise;
using csdsim::ScoreAggregate;
using csdsim::ScorePrecision;

struct ImportanceOptions {
  TokenBudget tokens = 128;  ///< tokens attended to, the current one included; at least 1
  std::uint32_t bits = 8;    ///< bits of a key component: 8, 4, or 16 for exact scores from the fp16 keys
  ScoreAggregate aggregate = ScoreAggregate::sum_raw;
  /// Layers but the first choose by queries that were computed from the input of the layer before them.
  bool ahead = false;
};

/// Importance of HillInfer (docs/algorithms.md, HillInfer scoring): imp[j] = sum over heads of q . k[j], neither scaled
/// nor exponentiated, in integers: q is symmetric INT8 with one scale per query head, k is symmetric INT8 or INT4 with
/// one scale per token and head. With 16 bits, q and k are as they are. The k best tokens and the current one are
/// attended to with their fp16 keys and values. HeadSelection::recall compares the k best with those by exact scores of
/// the layer's own queries.
class ImportanceAttention final : public AttentionMethod {
 public:
  /// UserError if the budget is 0 or bits is not 16, 8 or 4.
  explicit ImportanceAttention(const ImportanceOptions& options, std::string_view name = "importance");
  std::string_view name() const override { return name_; }
  bool speculates() const override { return options_.ahead; }
  void speculate(SequenceId sequence, LayerId layer, std::span<const float> q) override {
    speculated_.at(sequence, layer, 0).assign(q.begin(), q.end());
  }
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) override;
  void forget(SequenceId sequence) override {
    states_.forget(sequence);
    speculated_.forget(sequence);
  }

 private:
  struct State {
    std::vector<std::int8_t> keys;  ///< [tokens][d]
    std::vector<float> scales;      ///< [tokens]
  };

  /// [lists][tokens - 1]: without the current token.
  using Scores = std::vector<std::vector<float>>;
  Scores scores(const LayerStep& step, std::span<const float> q, std::uint32_t bits);
  /// The queries that choose.
  std::span<const float> choosing(const LayerStep& step);
  /// The keys of a head in integers, those of new tokens added.
  const State& quantised(const LayerStep& step, std::size_t head);

  ImportanceOptions options_;
  std::string_view name_;
  HeadStates<State> states_;
  HeadStates<std::vector<float>> speculated_;  ///< by layer, head 0: q of all heads
};

}  // namespace csdsim::host
