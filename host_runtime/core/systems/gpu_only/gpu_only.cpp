#include "host_runtime/core/systems/gpu_only/gpu_only.h"

#include "host_runtime/core/plan/tiered_kv_planner.h"

namespace csdsim::host {

SystemNeeds GpuOnly::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  return {.kv = Place::gpu(),
          .residents = {{Place::gpu(), "weights", model.weight_bytes()},
                        {Place::gpu(), "K and V", model.kv_bytes_per_token() * workload.longest_contexts()}}};
}

std::unique_ptr<Planner> GpuOnly::plan(const PlannerInputs& inputs) const {
  return std::make_unique<TieredKvPlanner>(inputs,
                                           TieredKv{.shards = tier_heads(inputs.model.kv_heads, {1, 1}, {0, 1})});
}

}  // namespace csdsim::host
