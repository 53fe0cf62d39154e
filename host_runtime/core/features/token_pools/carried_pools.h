// Pools of tokens in runs that carry data: which rows of K and V are in host memory, and what scores and fetches bring.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/carried/tensor_store.h"
#include "host_runtime/core/features/token_pools/pooled_kv.h"
#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// K and V of single tokens by sequence and position: K of the heads of a list, then V of these heads.
struct TokenRows {
  std::map<SequenceId, std::map<std::uint32_t, std::vector<Half>>> rows;
};

/// Scores by sequence: {position, score}.
struct TokenScores {
  std::map<SequenceId, std::vector<std::pair<std::uint32_t, float>>> scores;
};

/// The operations of plans with pools. Every step checks that each token is scored once: it is in host memory or in the
/// a drive, never in both or neither. After every change, the rows in host memory are those of the hot tokens.
class CarriedPools final : public CarriedFeature {
 public:
  /// `tensors` must outlive this.
  CarriedPools(const PooledPlan& plan, const ModelConfig& model, TensorStore& tensors);

  const PooledKv& pools() const { return pools_; }
  std::optional<Work> resolve(const Operation& op);
  bool places_tokens() const override { return true; }
  bool serves(const Operation& op) const override;
  void perform(const Operation& op) override;
  /// What a drive's operation has brought is at its place now.
  void ended(const Operation& op) override;
  void load_queries(const Operation& op, std::size_t index, HeadRange heads, std::span<Half> q) override;
  void store_scores(const Operation& op, std::size_t index, HeadRange heads, std::uint32_t first,
                    std::span<const float> scores) override;
  void store_rows(const Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count, HeadRange heads,
                  std::span<const Half> k, std::span<const Half> v) override;

 private:
  void join(const Operation& op) const;
  void score(const Operation& op) const;
  void merge(const Operation& op) const;
  void select(const Operation& op);
  void gather(const Operation& op) const;
  void attend(const Operation& op) const;
  void attend(const Operation& op, HeadRange heads) const;
  void update(const Operation& op) const;
  /// InternalError unless the rows in host memory are those of the hot tokens, and the log has all others.
  void check(const Operation& op, const TokenRows& hot) const;
  /// Positions of the tokens that a fetch brings for sequence `index` of its work.
  std::vector<std::uint32_t> fetched(const Operation& op, std::size_t index) const;
  std::size_t width(HeadRange heads) const { return std::size_t{heads.count} * model_.head_dim; }
  /// Chosen tokens of a list that are at the GPU, in the order of their positions; the rows are those of `op`'s inputs.
  std::map<std::uint32_t, const std::vector<Half>*> at_gpu(const Operation& op, HeadRange heads,
                                                           SequenceId sequence) const;

  ModelConfig model_;
  TensorStore& tensors_;
  PooledKv pools_;
  std::map<OperationId, TokenScores> arriving_scores_;
  std::map<OperationId, TokenRows> arriving_rows_;
};

}  // namespace csdsim::host
