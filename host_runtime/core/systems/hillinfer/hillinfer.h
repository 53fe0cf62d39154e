// HillInfer: tokens scored in the drive and on the host, the important ones attended to on the GPU.
#pragma once

#include <optional>

#include "host_runtime/core/plan/searched_system.h"
#include "host_runtime/core/systems/hillinfer/planner.h"
#include "host_runtime/core/systems/hillinfer/split.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// K and V of each token are in host memory or in one of the drives. Both score their tokens by raw inner products, and
/// the GPU gets the best of all. A hit table moves tokens between them. How many are in host memory follows from the
/// rates of both sides (split.h).
class Hillinfer final : public CopyableSystem<Hillinfer>, public SearchedSystem {
 public:
  static constexpr std::string_view kKind = "hillinfer";
  static constexpr std::string_view kDoc =
      "HillInfer: host and drive score the tokens that they hold; the GPU attends to the best of all.";

  Ratio ratio{1, 5};
  Ratio pinned{1, 10};
  Ratio kept_hot{1, 5};
  std::uint32_t chunk = 512;
  bool streamed = true;
  bool prefetch = true;
  ScorePrecision precision = ScorePrecision::fp16;
  ScoreAggregate aggregate = ScoreAggregate::sum_raw;
  std::optional<Ratio> host_share;
  std::optional<Ratio> important_hot;
  std::optional<Ratio> important_cold;
  PoolPolicy pools = PoolPolicy::hit_table;
  std::uint32_t kv_buffers = 2;
  WeightPlacement weights;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape&, const BatchLengths&, const PlatformRates& rates) override { rates_ = rates; }
  std::vector<std::string> unused_parameters() const override;
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  SystemTraits traits() const override { return {.chooses_tokens = true, .method = method()}; }
  RunFeatures features(const PlannerInputs& inputs) const override;
  /// InternalError before choose(), unless host_share is given.
  PooledPlan pooled_plan(const PlannerInputs& inputs) const;
  Remarks remarks(const ModelShape& model, std::uint32_t longest) const override;

 private:
  SystemMethod method() const;
  /// The rates of both sides for a model, as a step has them.
  PoolRates pool_rates(const ModelShape& model) const;
  PoolShares pool_shares() const;
  /// The fewest tokens of a context that have to be in host memory: pinned ones, those kept hot, or important ones.
  std::uint64_t least_hot(std::uint64_t context) const;
  /// Tokens of each sequence and layer in host memory, without the place of the next one. Nothing before choose()
  /// unless host_share is given.
  std::optional<std::uint64_t> hot_tokens_of(const ModelShape& model, const BatchLengths& workload) const;
  /// K and V of a prompt that pass through host memory.
  Bytes passing(const ModelShape& model, const BatchLengths& workload) const;

  std::optional<PlatformRates> rates_;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<ScorePrecision> {
  static constexpr EnumValue<ScorePrecision> values[] = {
      {ScorePrecision::fp16, "fp16", "Products of fp16 values, summed in fp32."},
      {ScorePrecision::int8, "int8", "q and k are cast to INT8 with a scale per head and token."},
      {ScorePrecision::int4, "int4", "q is cast to INT8 and k to INT4, with a scale per head and token."}};
};

template <>
struct EnumValues<ScoreAggregate> {
  static constexpr EnumValue<ScoreAggregate> values[] = {
      {ScoreAggregate::sum_raw, "sum_raw", "One list per layer, by the sum over the query heads."},
      {ScoreAggregate::max_raw, "max_raw", "One list per layer, by the largest over the query heads."},
      {ScoreAggregate::per_head, "per_head", "One list per KV head, by the sum over its query heads."}};
};

template <>
struct EnumValues<host::PoolPolicy> {
  static constexpr EnumValue<host::PoolPolicy> values[] = {
      {host::PoolPolicy::hit_table, "hit_table",
       "Tokens with the most hits come to host memory, those with the fewest leave."},
      {host::PoolPolicy::naive, "naive",
       "The important tokens of a step come to host memory, the least recently important leave."}};
};

}  // namespace csdsim
