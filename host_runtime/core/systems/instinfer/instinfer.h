// InstInfer, dense and SparF: parameters, requirements and checks. The operations are in planner.h.
//
// "InstInfer: In-Storage Attention Offloading for Cost-Effective Long-Context LLM Inference".
#pragma once

#include "host_runtime/core/plan/sparf_budget.h"
#include "host_runtime/core/plan/system.h"
#include "host_runtime/core/systems/instinfer/planner.h"
#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/sparf_parameters.h"

namespace csdsim::host {

/// Exact attention in the drives.
class InstinferDense final : public CopyableSystem<InstinferDense> {
 public:
  static constexpr std::string_view kKind = "instinfer-dense";
  static constexpr std::string_view kDoc = "InstInfer with dense attention in the drive.";

  Method stated = Method::dense;  ///< parameter `method`, which must agree with the kind
  std::uint32_t kv_buffers = 2;   ///< layers of K and V on the GPU per mini-batch in the prefill
  ShardBy shard = ShardBy::head;  ///< the dimension that several drives divide
  KvFormat kv;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  /// Drives that divide tokens take those of a step in turn, so that all sequences have to be at the same step.
  /// K and V that are computed again are not quantised.
  SystemTraits traits() const override {
    return {.ends_sequences = true,
            .serves_arrivals = shard == ShardBy::head,
            .restores_lost_kv = shard == ShardBy::head && kv.bits == ElementBits::sixteen,
            .kv_format = kv.rows()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

/// SparF attention in the drives: SparQ on flash pages, in two steps.
class InstinferSparf final : public CopyableSystem<InstinferSparf> {
 public:
  static constexpr std::string_view kKind = "instinfer-sparf";
  static constexpr std::string_view kDoc = "InstInfer with SparF attention in the drive: SparQ on pages in two steps.";

  Method stated = Method::sparf;
  std::uint32_t kv_buffers = 2;
  ShardBy shard = ShardBy::head;  ///< head only: outputs of SparF cannot be merged
  SparfParameters sparf = {};
  KvFormat kv;

  InstinferSparf() = default;
  explicit InstinferSparf(const SparfParameters& parameters) : sparf(parameters) {}

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  /// K and V that are computed again are not quantised.
  SystemTraits traits() const override {
    return {.ends_sequences = true,
            .serves_arrivals = true,
            .restores_lost_kv = kv.bits == ElementBits::sixteen,
            .kv_format = kv.rows(),
            .method = sparf_method("sparf", sparf)};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

}  // namespace csdsim::host

namespace csdsim {

template <>
struct EnumValues<host::ShardBy> {
  static constexpr EnumValue<host::ShardBy> values[] = {
      {host::ShardBy::head, "head", "Each drive holds all tokens of its KV heads."},
      {host::ShardBy::token, "token", "Each drive holds all KV heads of its tokens; the GPU merges partial outputs."}};
};

}  // namespace csdsim
