#include "host_runtime/core/systems/host_kv/host_kv.h"

#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/host_kv/planner.h"

namespace csdsim::host {

void HostKv::describe(ParamVisitor& v) {
  v.param("attention", attention, "Processor that attends in decode.", paper("FlexGen 4.1: both are offered"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way to the host in the prefill, copied ahead in "
          "decode with attention: gpu.",
          assumed("double buffering"));
  describe_kv(v, kv);
  describe_weights(v, weights);
}

void HostKv::check(config::Problems& problems, const SystemContext& context) const {
  check_kv(problems, context, kv);
  check_weights(problems, context, weights);
}

std::vector<std::string> HostKv::unused_parameters() const { return host::unused_parameters(weights, kv); }

SystemNeeds HostKv::needs(const PlannerInputs& run) const { return needs_kv_on_host(run, weights, kv); }

std::unique_ptr<Planner> HostKv::plan(const PlannerInputs& inputs) const {
  if (attention == AttentionAt::host)
    return std::make_unique<HostAttentionPlanner>(inputs, kv_buffers, weights, kv.rows());
  const TieredKv tiers{
      .shards = tier_heads(inputs.model.kv_heads, {0, 1}, {1, 1}), .format = kv.rows(), .kv_buffers = kv_buffers};
  return std::make_unique<TieredKvPlanner>(inputs, tiers, weights);
}

}  // namespace csdsim::host
