#include "host_runtime/core/planner/systems/flexgen_ssd/flexgen_ssd.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "host_runtime/core/planner/tiered_kv_planner.h"

namespace csdsim::host {

void FlexGenSsd::describe(ParamVisitor& v) {
  v.param("kv_on_gpu", kv_on_gpu, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in GPU memory, rounded to whole KV heads.", paper("InstInfer III-A: on the SSD"));
  v.param("kv_on_host", kv_on_host, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in host memory, rounded to whole KV heads; what is neither there nor in GPU memory is in "
          "files on the drives.",
          paper("InstInfer III-A: on the SSD"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied ahead in decode.",
          assumed("double buffering, as in FlexGen's schedule"));
  describe_weights(v, weights);
  v.param("stores_attention_weights", stores_attention_weights,
          "The attention of the prefill stores the weights of all pairs of tokens before and after the softmax in GPU "
          "memory.",
          assumed("FlexGen's prefill is not a fused kernel; InstInfer VI-C: its intermediates exceed GPU memory"));
}

void FlexGenSsd::check(config::Problems& problems, const SystemContext&) const {
  problems.require(kv_on_gpu.value() + kv_on_host.value() <= 1, {"system.kv_on_gpu", "system.kv_on_host"},
                   fmt::format("system.kv_on_gpu: {} on the GPU and {} on the host are more than all of K and V",
                               format_quantity(kv_on_gpu), format_quantity(kv_on_host)));
  check_weights(problems, weights);
}

SystemNeeds FlexGenSsd::needs(const ModelShape& model, const BatchLengths& workload) const {
  SystemNeeds needs{.kv = Home::gpu, .residents = weight_residents(model, weights)};
  const Bytes per_head = model.kv_bytes_per_token_and_head() * model.layers * workload.longest_contexts();
  for (const KvShard& shard : tier_heads(model.kv_heads, kv_on_gpu, kv_on_host)) {
    const Home home = shard.tier == KvTier::gpu ? Home::gpu : shard.tier == KvTier::host ? Home::host : Home::drive_blocks;
    needs.kv = home;
    needs.residents.push_back({home, "K and V", per_head * shard.heads.count});
    if (shard.tier == KvTier::file) needs.files = FilePath::file_system;
  }
  return needs;
}

std::unique_ptr<Planner> FlexGenSsd::plan(const PlannerInputs& inputs) const {
  const TieredKv kv{.shards = tier_heads(inputs.model.kv_heads, kv_on_gpu, kv_on_host),
                    .kv_buffers = kv_buffers,
                    .stores_attention_weights = stores_attention_weights};
  return std::make_unique<TieredKvPlanner>(inputs, kv, weights);
}

}  // namespace csdsim::host
