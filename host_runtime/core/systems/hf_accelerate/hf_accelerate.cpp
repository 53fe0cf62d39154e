#include "host_runtime/core/systems/hf_accelerate/hf_accelerate.h"

#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/software_parameters.h"

namespace csdsim::host {

void HfAccelerate::describe(ParamVisitor& v) {
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way to the host in the prefill, copied ahead in "
          "decode.",
          assumed("OffloadedCache of Transformers 4.46 copies the next layer while one is computed"));
  describe_kv(v, kv);
  describe_weights(v, weights);
  describe_software(v, software);
}

void HfAccelerate::check(config::Problems& problems, const SystemContext& context) const {
  check_kv(problems, context, kv);
  check_weights(problems, context, weights);
}

std::vector<std::string> HfAccelerate::unused_parameters() const { return host::unused_parameters(weights, kv); }

SystemNeeds HfAccelerate::needs(const PlannerInputs& run) const { return needs_kv_on_host(run, weights, kv); }

std::unique_ptr<Planner> HfAccelerate::plan(const PlannerInputs& inputs) const {
  const TieredKv tiers{.shards = tier_heads(inputs.model.kv_heads, {0, 1}, {1, 1}),
                       .format = kv.rows(),
                       .kv_buffers = kv_buffers,
                       .software = software};
  return std::make_unique<TieredKvPlanner>(inputs, tiers, weights);
}

OffloadPlan HfAccelerate::stream_plan(const ModelShape&, const std::optional<StreamRates>&) const {
  refuse_software(software);
  refuse_few_bits(kv);
  const bool on_host = all_weights_on_host(weights);
  return {.order = on_host ? LayerOrder::column_by_column : LayerOrder::row_by_row,
          .weights_on_host = on_host,
          .weight_buffers = weights.buffers,
          .kv_buffers = kv_buffers,
          .waits_for_layers = true};
}

}  // namespace csdsim::host
