#include "host_runtime/core/systems/flexgen_ssd/flexgen_ssd.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"
#include "host_runtime/core/systems/flexgen_ssd/policy_search.h"

namespace csdsim::host {

namespace {

/// What the search chooses.
constexpr const char* const kOfPolicy[] = {"kv_on_gpu", "kv_on_host", "weights_on_host", "weights_in_files"};

std::uint64_t percent_up(Ratio share) { return (100 * share.numerator + share.denominator - 1) / share.denominator; }

}  // namespace

void FlexGenSsd::describe(ParamVisitor& v) {
  v.param("policy", policy,
          "Where the shares of weights, K and V come from. The search counts prompts from a file as one token.",
          paper("FlexGen 4.3"));
  v.param("kv_on_gpu", kv_on_gpu, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in GPU memory, rounded to whole KV heads.", paper("InstInfer III-A: on the SSD"));
  v.param("kv_on_host", kv_on_host, {Ratio{0, 1}, Ratio{1, 1}},
          "Share of K and V in host memory, rounded to whole KV heads; what is neither there nor in GPU memory is in "
          "files on the drives.",
          paper("InstInfer III-A: on the SSD"));
  v.param("kv_buffers", kv_buffers, {1, 1024},
          "Layers whose K and V the GPU holds per mini-batch: on their way out in the prefill, copied ahead in decode.",
          assumed("double buffering, as in FlexGen's schedule"));
  describe_kv(v, kv);
  describe_weights(v, weights);
  describe_weights_in_files(v, weights);
  v.param("stores_attention_weights", stores_attention_weights,
          "The attention of the prefill stores the weights of all pairs of tokens before and after the softmax in GPU "
          "memory.",
          assumed("FlexGen's prefill is not a fused kernel; InstInfer VI-C: its intermediates exceed GPU memory"));
}

void FlexGenSsd::check(config::Problems& problems, const SystemContext& context) const {
  check_kv(problems, context, kv);
  if (policy == PolicySource::searched) {
    problems.require(context.gpus <= 1, {"platform.gpu.count", "system.policy"},
                     fmt::format("platform.gpu.count: FlexGen's search plans for one GPU, not for {}: give the shares "
                                 "with system.policy: given",
                                 context.gpus));
    for (const char* const of_policy : kOfPolicy)
      problems.refuse_unused(fmt::format("system.{}", of_policy), "system.policy",
                             "the policy is searched; write policy: given");
    return;
  }
  problems.require(kv_on_gpu.value() + kv_on_host.value() <= 1, {"system.kv_on_gpu", "system.kv_on_host"},
                   fmt::format("system.kv_on_gpu: {} on the GPU and {} on the host are more than all of K and V",
                               format_quantity(kv_on_gpu), format_quantity(kv_on_host)));
  check_weights(problems, context, weights);
}

std::vector<std::string> FlexGenSsd::unused_parameters() const {
  std::vector<std::string> unused = host::unused_parameters(weights, kv);
  // remarks() tell what the search has chosen.
  if (policy == PolicySource::searched)
    for (const char* const of_policy : kOfPolicy) unused.emplace_back(of_policy);
  return unused;
}

void FlexGenSsd::choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) {
  if (policy == PolicySource::given) return;
  const FlexGenPolicy chosen = best_flexgen_policy({.model = model,
                                                    .workload = workload,
                                                    .rates = rates,
                                                    .kv = kv.rows(),
                                                    .kv_buffers = kv_buffers,
                                                    .weight_buffers = weights.buffers,
                                                    .stores_attention_weights = stores_attention_weights});
  kv_on_gpu = Ratio::of(chosen.heads_on_gpu, model.kv_heads);
  kv_on_host = Ratio::of(chosen.heads_on_host, model.kv_heads);
  weights.on_host = Ratio::of(chosen.weights_on_host, 100);
  weights.in_files = Ratio::of(chosen.weights_in_files, 100);
  gpu_batches_ = chosen.mini_batches;
  chosen_ = fmt::format(
      "searched: weights {} % GPU, {} % host, {} % files; K and V of {} KV heads GPU, {} host, {} files; {} "
      "mini-batch{}; "
      "by rates {:.3g} tokens/s",
      100 - chosen.weights_on_host - chosen.weights_in_files, chosen.weights_on_host, chosen.weights_in_files,
      chosen.heads_on_gpu, chosen.heads_on_host, model.kv_heads - chosen.heads_on_gpu - chosen.heads_on_host,
      chosen.mini_batches, chosen.mini_batches == 1 ? "" : "es",
      double(workload.batch()) * workload.output_tokens / chosen.seconds);
}

Remarks FlexGenSsd::remarks(const ModelShape&, std::uint32_t) const {
  if (chosen_.empty()) return {};
  return {{"flexgen_policy", chosen_}};
}

SystemNeeds FlexGenSsd::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = Place::gpu(), .residents = weight_residents(model, weights)};
  if (weights.in_files > Ratio{0, 1}) needs.files = FilePath::file_system;
  for (const KvShard& shard : tier_heads(model.kv_heads, kv_on_gpu, kv_on_host)) {
    const Place home = shard.tier == Place::gpu()    ? Place::gpu()
                       : shard.tier == Place::host() ? Place::host()
                                                     : Place::drive_blocks();
    needs.kv = home;
    // Files do not shrink when a sequence ends.
    const bool in_files = shard.tier == Place::file();
    const std::uint64_t tokens = in_files ? workload.kept_tokens() : workload.longest_contexts();
    needs.residents.push_back(
        {home, "K and V", kept_kv_bytes(model, kv.rows()) * (model.layers * shard.heads.count * tokens)});
    if (in_files) needs.files = FilePath::file_system;
  }
  needs.what_would_fit = [system = *this, run](Place home, Bytes capacity) {
    return system.shares_that_fit(run, home, capacity);
  };
  return needs;
}

std::string FlexGenSsd::shares_that_fit(const PlannerInputs& run, Place home, Bytes capacity) const {
  if (policy == PolicySource::searched || home == Place::drive_blocks()) return "";
  const std::uint64_t on_host = percent_up(weights.on_host);
  FlexGenSsd other = *this;
  for (std::uint64_t in_files = percent_up(weights.in_files); ++in_files <= 100;) {
    // Out of the memory that is short: out of the host, more in files; out of the GPU, the host's share stays.
    const std::uint64_t kept =
        home == Place::host() ? on_host - std::min(on_host, in_files - percent_up(weights.in_files)) : on_host;
    if (kept + in_files > 100) break;
    other.weights.on_host = Ratio::of(kept, 100);
    other.weights.in_files = Ratio::of(in_files, 100);
    Bytes bytes;
    for (const Resident& resident : other.needs(run).residents)
      if (resident.home == home) bytes += resident.bytes;
    if (bytes <= capacity)
      return fmt::format("weights_on_host: {} % and weights_in_files: {} % would fit", kept, in_files);
  }
  return "";
}

std::unique_ptr<Planner> FlexGenSsd::plan(const PlannerInputs& inputs) const {
  const TieredKv tiers{.shards = tier_heads(inputs.model.kv_heads, kv_on_gpu, kv_on_host),
                       .format = kv.rows(),
                       .kv_buffers = kv_buffers,
                       .stores_attention_weights = stores_attention_weights};
  return std::make_unique<TieredKvPlanner>(inputs, tiers, weights);
}

}  // namespace csdsim::host
