#include "host_runtime/core/planner/systems/flexgen_ssd/flexgen_ssd.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/quantity.h"
#include "host_runtime/core/planner/systems/flexgen_ssd/policy_search.h"
#include "host_runtime/core/planner/tiered_kv_planner.h"

namespace csdsim::host {

namespace {

// FlexGen plans with this share of each memory and leaves the rest to fragmentation. Source: its released cost model.
constexpr Ratio kPlannedShare = Ratio::of(4, 5);

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
  std::vector<std::string> unused = unused_weight_parameters(weights);
  add_unused_kv(kv, unused);
  // remarks() tell what the search has chosen.
  if (policy == PolicySource::searched)
    for (const char* const of_policy : kOfPolicy) unused.emplace_back(of_policy);
  return unused;
}

void FlexGenSsd::choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) {
  if (policy == PolicySource::given) return;
  const FlexGenHardware hardware{
      .host_to_gpu = rates.host_to_gpu,
      .gpu_to_host = rates.gpu_to_host,
      .disk_to_host = rates.files_to_host,
      .host_to_disk = rates.host_to_files,
      .gpu_matrix_rate = rates.gpu_gemm,
      .gpu_attention_rate = rates.gpu_attention,
      .host_attention_rate = rates.host_attention,
      .gpu_memory_bandwidth = rates.gpu_memory_bandwidth,
      .host_memory_bandwidth = rates.host_memory_bandwidth,
      .capacity = {kPlannedShare.floor_of(rates.gpu_memory.value), kPlannedShare.floor_of(rates.host_memory.value),
                   kPlannedShare.floor_of(rates.files.value)}};
  const FlexGenCostModel costs(model, FlexGenLengths::of(workload), hardware, CostForm::released_code, kv.rows());
  const std::uint32_t batch = workload.batch();
  const FlexGenChoice choice = best_flexgen_policy(costs, batch,
                                                   {.cpu_cache_compute = false,
                                                    .activations = TierSplit{.gpu = 100},
                                                    .activations_on_disk = false,
                                                    .weights_on_disk = !rates.carried});
  kv_on_gpu = Ratio::of(choice.policy.cache.gpu, 100);
  kv_on_host = Ratio::of(choice.policy.cache.host, 100);
  weights.on_host = Ratio::of(choice.policy.weights.host, 100);
  weights.in_files = Ratio::of(choice.policy.weights.disk(), 100);
  gpu_batches_ = choice.policy.num_gpu_batches;
  chosen_ = fmt::format(
      "searched: weights {} % GPU, {} % host, {} % files; K and V {} % GPU, {} % host, {} % files; {} GPU batches of "
      "{}; the cost model expects {:.3g} tokens/s",
      choice.policy.weights.gpu, choice.policy.weights.host, choice.policy.weights.disk(), choice.policy.cache.gpu,
      choice.policy.cache.host, choice.policy.cache.disk(), choice.policy.num_gpu_batches, choice.policy.gpu_batch_size,
      choice.tokens_per_second);
}

std::vector<std::pair<std::string, std::string>> FlexGenSsd::remarks(const ModelShape&, std::uint32_t) const {
  if (chosen_.empty()) return {};
  return {{"flexgen_policy", chosen_}};
}

SystemNeeds FlexGenSsd::needs(const PlannerInputs& run) const {
  const ModelShape& model = run.model;
  const BatchLengths& workload = run.workload;
  SystemNeeds needs{.kv = Home::gpu, .residents = weight_residents(model, weights)};
  if (weights.in_files > Ratio{0, 1}) needs.files = FilePath::file_system;
  for (const KvShard& shard : tier_heads(model.kv_heads, kv_on_gpu, kv_on_host)) {
    const Home home = shard.tier == KvTier::gpu    ? Home::gpu
                      : shard.tier == KvTier::host ? Home::host
                                                   : Home::drive_blocks;
    needs.kv = home;
    // Files do not shrink when a sequence ends.
    const bool in_files = shard.tier == KvTier::file;
    const std::uint64_t tokens = in_files ? workload.kept_tokens() : workload.longest_contexts();
    needs.residents.push_back(
        {home, "K and V", kept_kv_bytes(model, kv.rows()) * (model.layers * shard.heads.count * tokens)});
    if (in_files) needs.files = FilePath::file_system;
  }
  needs.what_would_fit = [system = *this, run](Home home, Bytes capacity) {
    return system.shares_that_fit(run, home, capacity);
  };
  return needs;
}

std::string FlexGenSsd::shares_that_fit(const PlannerInputs& run, Home home, Bytes capacity) const {
  if (policy == PolicySource::searched || home == Home::drive_blocks) return "";
  const std::uint64_t on_host = percent_up(weights.on_host);
  FlexGenSsd other = *this;
  for (std::uint64_t in_files = percent_up(weights.in_files); ++in_files <= 100;) {
    // Out of the memory that is short: out of the host, more in files; out of the GPU, the host's share stays.
    const std::uint64_t kept =
        home == Home::host ? on_host - std::min(on_host, in_files - percent_up(weights.in_files)) : on_host;
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
