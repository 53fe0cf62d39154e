#include "experiment/generation/generation_setup.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/generation/generation_workload.h"

namespace csdsim::experiment {

using scenario::Scenario;

namespace {

/// The path of file operations, with the host memory that the system's own data leaves for a page cache.
std::optional<host::FileIoParams> file_params(const Scenario& s, const host::SystemNeeds& needs) {
  if (!needs.files) return std::nullopt;
  Bytes used;
  for (const host::Resident& resident : needs.residents)
    if (resident.home == host::Place::host()) used += resident.bytes;
  const platform::HostConfig& host = s.platform.host;
  const Bytes free = host.memory > used ? host.memory - used : Bytes{};
  return *needs.files == host::FilePath::swap ? host.swap.params(free) : host.file.params(free);
}

}  // namespace

host::SamplingSettings first_sample(const host::OffloadSystem& system, const host::PlannerInputs& plan) {
  const host::SystemNeeds needs = system.needs(plan);
  host::SamplingSettings sampling;
  sampling.cooldown = plan.mini_batches > 1 ? 1 : 0;
  sampling.ahead = system.plan(plan)->layers_ahead();
  if (needs.kv != host::Place::drive_kv())
    sampling.spill = {.token = needs.written_tokens > 1 ? 1U : 0U, .window = 0};  // memory takes token by token
  if (needs.shares) {
    sampling.spill.window = 1;  // a group that goes to memory is there within a step
    sampling.settled = true;
  }
  if (!needs.parts_of_steps) return sampling;
  sampling.warmup_layers = 2;
  sampling.cooldown_layers = std::max(1U, plan.mini_batches - 1);  // the first mini-batch is ahead of all others
  // The work of dense attention grows evenly with the context. What sparse attention reads grows by whole pages of
  // whole heads, which moves a step by some per cent.
  const auto longest = static_cast<std::uint32_t>(plan.workload.longest_sequence());
  sampling.steps = system.traits().method.sparse_budget(plan.model, longest) ? 12 : 8;
  return sampling;
}

GenerationSetup generation_setup(const Scenario& s, const std::vector<std::uint32_t>& prompt_tokens) {
  const GenerationWorkload& workload = generation_of(s);
  GenerationSetup setup;
  setup.platform = platform_params(s);
  setup.gpu = s.platform.gpu;
  setup.gpu_link = gpu_link_of(s);
  setup.host = {.cores = s.platform.host.cores,
                .core_flops = s.platform.host.core_rate.flop_per_second,
                .memory = s.platform.host.memory_bandwidth,
                .efficiency = host::RooflineEfficiency::all(s.platform.host.efficiency)};
  setup.lost_kv = workload.lost_kv;
  setup.granularity = s.platform.device.nvme.granularity;
  if (workload.background) setup.queues_of_others = 1;
  setup.sources.seed = s.seed;
  setup.plan = planned_run(s, workload.lengths());
  setup.plan.workload.set_prompts(prompt_tokens);
  setup.plan.gpus = s.platform.gpu.count;
  setup.plan.mini_batches = workload.mini_batches_of(s, setup.plan.workload.batch());
  setup.plan.overlap_mini_batches = s.platform.overlap.mini_batches;
  setup.system = s.system->clone();
  const host::SystemNeeds needs = setup.system->needs(setup.plan);
  setup.file = file_params(s, needs);
  setup.sampling = first_sample(*setup.system, setup.plan);
  const auto& sampling = s.simulation.sampling;
  if (sampling && sampling->heads) setup.sampling.heads = *sampling->heads;
  if (!sampling) {
    setup.sampling.off = true;
    setup.why_whole = s.simulation.why_whole;
  } else if (sampling->layers && sampling->steps) {
    setup.sampling.layers = *sampling->layers;
    setup.sampling.steps = *sampling->steps;
  } else {
    setup.asked_error = sampling->error.value();
    setup.automatic_heads = !sampling->heads;
  }
  return setup;
}

}  // namespace csdsim::experiment
