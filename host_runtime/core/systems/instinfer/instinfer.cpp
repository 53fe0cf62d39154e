#include "host_runtime/core/systems/instinfer/instinfer.h"

#include <fmt/format.h>

namespace csdsim::host {

namespace {

void describe_common(ParamVisitor& v, Method& stated, std::uint32_t& kv_buffers, ShardBy& shard) {
  v.param("method", stated, "Repeats the method; must agree with kind.", paper("InstInfer VI-A"));
  v.param(
      "kv_buffers", kv_buffers, {1, 1024},
      "Layers whose K and V the GPU holds per mini-batch during the prefill. When all are in use, the GPU waits until "
      "the drives have accepted the oldest.",
      assumed("double buffering; InstInfer states no number"));
  v.param("shard", shard,
          "What several drives divide: KV heads, or the tokens of every head, whose partial outputs the GPU merges by "
          "their log-sum-exp. The same with one drive. SparF and requests that arrive take head only.",
          paper("InstInfer IV-D: heads; token is split-K attention as in FlashDecoding"));
}

void check_method(config::Problems& problems, Method stated, Method own, std::string_view kind) {
  problems.require(stated == own, {"system.method", "system.kind"},
                   fmt::format("system.method: {} disagrees with system.kind {}", csdsim::name_of(stated), kind));
}

/// InstInfer IV-B: weights stay on the GPU, keys and values in the drives.
SystemNeeds instinfer_needs(const ModelShape& model, bool component_major, ShardBy shard) {
  return {.kv = Place::drive_kv(),
          .component_major = component_major,
          .residents = {{Place::gpu(), "weights", model.weight_bytes()}},
          .shard = shard,
          .parts_of_steps = true};
}

}  // namespace

void InstinferDense::describe(ParamVisitor& v) {
  describe_common(v, stated, kv_buffers, shard);
  describe_kv(v, kv);
}

void InstinferDense::check(config::Problems& problems, const SystemContext& context) const {
  check_method(problems, stated, Method::dense, kKind);
  check_kv(problems, context, kv);
}

std::vector<std::string> InstinferDense::unused_parameters() const {
  std::vector<std::string> unused;
  add_unused_kv(kv, unused);
  return unused;
}

SystemNeeds InstinferDense::needs(const PlannerInputs& run) const { return instinfer_needs(run.model, false, shard); }

std::unique_ptr<Planner> InstinferDense::plan(const PlannerInputs& inputs) const {
  return std::make_unique<InstInfer>(inputs, kv_buffers, shard, std::nullopt, kv.rows());
}

void InstinferSparf::describe(ParamVisitor& v) {
  describe_common(v, stated, kv_buffers, shard);
  describe_sparf(v, sparf);
  describe_kv(v, kv);
}

void InstinferSparf::check(config::Problems& problems, const SystemContext& context) const {
  check_method(problems, stated, Method::sparf, kKind);
  problems.require(shard == ShardBy::head, {"system.shard", "system.kind"},
                   "system.shard: token: SparF chooses k of all tokens of a head. A choice by each drive among its own "
                   "tokens would be another method; a choice over all drives takes a second exchange of scores, which "
                   "is not modelled. Use shard: head, or instinfer-dense");
  check_sparf(problems, context, sparf);
  check_kv(problems, context, kv);
}

std::vector<std::string> InstinferSparf::unused_parameters() const {
  std::vector<std::string> unused = unused_sparf_parameters(sparf);
  add_unused_kv(kv, unused);
  return unused;
}

SystemNeeds InstinferSparf::needs(const PlannerInputs& run) const { return instinfer_needs(run.model, true, shard); }

std::unique_ptr<Planner> InstinferSparf::plan(const PlannerInputs& inputs) const {
  return std::make_unique<InstInfer>(inputs, kv_buffers, shard, sparf, kv.rows());
}

}  // namespace csdsim::host
