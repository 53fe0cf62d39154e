#include "host_runtime/core/planner/systems/deepspeed_host/deepspeed_host.h"

#include "host_runtime/core/planner/tiered_kv_planner.h"

namespace csdsim::host {

void DeepSpeedHost::describe(ParamVisitor& v) {
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied ahead in decode.",
          assumed("double buffering"));
  describe_weights(v, weights);
  v.param("rewrites_cache", rewrites_cache,
          "A step writes K and V of all tokens to new memory and releases the old ones at its end, so that both exist "
          "at the same time; if not, new tokens are written behind the others.",
          assumed("caches are concatenated layer by layer, and the model's old ones live until the step ends"));
}

void DeepSpeedHost::check(config::Problems& problems, const SystemContext& context) const {
  check_weights(problems, context, weights);
}

SystemNeeds DeepSpeedHost::needs(const ModelShape& model, const BatchLengths& workload) const {
  // K and V may exceed host memory, so they are residents of the swap space only.
  SystemNeeds needs{.kv = Home::host, .residents = weight_residents(model, weights), .files = FilePath::swap};
  const std::uint64_t copies = rewrites_cache ? 2 : 1;
  needs.residents.push_back(
      {Home::drive_blocks, "swap for K and V", model.kv_bytes_per_token() * (copies * workload.kept_tokens())});
  return needs;
}

std::unique_ptr<Planner> DeepSpeedHost::plan(const PlannerInputs& inputs) const {
  const TieredKv kv{.shards = tier_heads(inputs.model.kv_heads, {0, 1}, {0, 1}),
                    .kv_buffers = kv_buffers,
                    .rewritten = rewrites_cache};
  return std::make_unique<TieredKvPlanner>(inputs, kv, weights);
}

}  // namespace csdsim::host
