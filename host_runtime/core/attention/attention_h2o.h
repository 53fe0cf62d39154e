// H2O: heavy hitters and recent tokens; the others are evicted for good.
#pragma once

#include "host_runtime/core/attention/attention_choice.h"

namespace csdsim::host {

/// The rank of the tokens outside the recent window.
enum class H2oRank : std::uint8_t {
  sum,     ///< the paper: all weight that queries gave a token, those of the prompt included
  mean,    ///< the same divided by the number of queries that could see the token, so that age does not count
  decoded  ///< the weight that queries after the prompt gave it; of equals the newer token stays
};

struct H2oOptions {
  TokenBudget capacity = 128;  ///< heavy and recent tokens that outlive a step together; at least 1
  /// How many of these are the newest tokens. Unset: half of the capacity, rounded up.
  std::optional<std::uint32_t> recent;
  H2oRank rank = H2oRank::sum;
};

/// H2O (arXiv 2306.14048; docs/algorithms.md, H2O and windows). Every kept token has the softmax weight that queries
/// have given it so far, summed over the KV group: those of the prompt first. After the prompt the newest tokens stay
/// and, of the rest, the heaviest. A step attends to what is kept and to its own token, then evicts the lightest token
/// (of equals the oldest) outside the recent window until the capacity is met. A sequence whose prompt was not seen
/// starts with weights of 0.
class H2oAttention final : public ChoosingMethod {
 public:
  /// UserError if the capacity is 0, or a number below `recent`.
  explicit H2oAttention(const H2oOptions& options, std::string_view name = "h2o");
  std::string_view name() const override { return name_; }
  bool learns_from_prompt() const override { return true; }
  void learn(const LayerPrompt& prompt) override;
  std::vector<std::vector<std::uint32_t>> choose(const LayerStep& step) override;
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) override;
  const std::vector<std::uint32_t>* kept(SequenceId sequence, LayerId layer, std::size_t head) override {
    return &states_.at(sequence, layer, head).kept;
  }
  void forget(SequenceId sequence) override { states_.forget(sequence); }

 private:
  struct State {
    std::vector<std::uint32_t> kept;  ///< ascending
    std::vector<float> weight;        ///< accumulated, by position in `kept`
    std::size_t seen = 0;             ///< tokens of the cache so far
  };
  /// Tokens that are new since the last step are kept until the next eviction.
  State& extended(const LayerStep& step, std::size_t head);
  void evict(State& state, std::size_t tokens) const;

  H2oOptions options_;
  std::string_view name_;
  HeadStates<State> states_;
};

}  // namespace csdsim::host
