#include "host_runtime/core/systems/deepspeed_host/deepspeed_host.h"

#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/software_parameters.h"

namespace csdsim::host {

void DeepSpeedHost::describe(ParamVisitor& v) {
  v.param(
      "kv", kv, "Where K and V are kept.",
      assumed("InstInfer III-A and VI-C: host memory, which is swapped at batch 32; ZeRO-Inference offers the others"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied ahead in decode.",
          assumed("double buffering"));
  describe_weights(v, weights);
  v.param("rewrites_cache", rewrites_cache,
          "A step writes K and V of all tokens to new memory and releases the old ones at its end, so that both exist "
          "at the same time; if not, new tokens are written behind the others.",
          assumed("caches are concatenated layer by layer, and the model's old ones live until the step ends"));
  describe_software(v, software);
}

void DeepSpeedHost::check(config::Problems& problems, const SystemContext& context) const {
  check_weights(problems, context, weights);
  if (!swaps())
    problems.refuse_unused("system.rewrites_cache", "system.kv", "memory that is not swapped grows in its place");
  if (kv == DeepSpeedKv::gpu)
    problems.refuse_unused("system.kv_buffers", "system.kv", "K and V stay where the GPU attends to them");
}

std::vector<std::string> DeepSpeedHost::unused_parameters() const {
  std::vector<std::string> unused = unused_weight_parameters(weights);
  if (!swaps()) unused.emplace_back("rewrites_cache");
  if (kv == DeepSpeedKv::gpu) unused.emplace_back("kv_buffers");
  return unused;
}

SystemNeeds DeepSpeedHost::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = kv == DeepSpeedKv::gpu ? Place::gpu() : Place::host(),
                    .residents = weight_residents(model, weights)};
  const Bytes token = model.kv_bytes_per_token();
  if (!swaps()) {
    needs.residents.push_back({needs.kv, "K and V", token * workload.longest_contexts()});
    return needs;
  }
  // K and V may exceed host memory, so they are residents of the swap space only.
  needs.files = FilePath::swap;
  const std::uint64_t copies = rewrites_cache ? 2 : 1;
  needs.residents.push_back({Place::drive_blocks(), "swap for K and V", token * (copies * workload.kept_tokens())});
  return needs;
}

std::unique_ptr<Planner> DeepSpeedHost::plan(const PlannerInputs& inputs) const {
  const Ratio all{1, 1}, none{0, 1};
  const TieredKv tiers{.shards = tier_heads(inputs.model.kv_heads, kv == DeepSpeedKv::gpu ? all : none,
                                            kv == DeepSpeedKv::pinned ? all : none),
                       .kv_buffers = kv_buffers,
                       .rewritten = swaps() && rewrites_cache,
                       .software = software};
  return std::make_unique<TieredKvPlanner>(inputs, tiers, weights);
}

}  // namespace csdsim::host
