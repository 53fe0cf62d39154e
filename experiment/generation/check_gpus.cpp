#include "experiment/generation/check_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace csdsim::experiment {

using scenario::Checker;
using scenario::Scenario;

namespace {

/// The sequences of the mini-batches that a GPU computes.
host::BatchLengths lengths_on(std::uint32_t gpu, std::uint32_t gpus, const std::vector<host::Share>& mini_batches,
                              const host::BatchLengths& all) {
  std::vector<std::uint32_t> prompts, outputs;
  std::uint32_t places = 0;
  for (std::size_t mb = gpu; mb < mini_batches.size(); mb += gpus) {
    const host::Share& share = mini_batches[mb];
    places += share.count;
    for (std::uint32_t i = share.first; !all.served() && i < share.first + share.count; ++i) {
      prompts.push_back(all.requests[i].prompt);
      outputs.push_back(all.output_of(i));
    }
  }
  if (all.served()) {  // any request may get any place
    host::BatchLengths part = all;
    part.places = places;
    return part;
  }
  if (all.own_outputs()) return host::BatchLengths::with_outputs(prompts, outputs);
  return {prompts, all.output_tokens};
}

/// The GPUs have root ports of the host, each with the lanes of its link.
bool check_lanes(Checker& c) {
  constexpr std::uint32_t kUsualLanes = 16;
  const platform::PlatformConfig& p = c.scenario().platform;
  if (!p.host.gpu_lanes) return true;
  const std::uint32_t behind_switch = p.upstream ? std::min(p.upstream->gpus, p.gpu.count) : 0;
  const std::uint32_t lanes = p.gpu.link.lanes.value_or(kUsualLanes), needed = (p.gpu.count - behind_switch) * lanes;
  c.require(needed <= *p.host.gpu_lanes, {"platform.gpu.count", "platform.host.gpu_lanes"},
            fmt::format("platform.gpu.count: {} GPUs of {} lanes each need {} PCIe lanes, and the host has {} for them "
                        "(platform.host.gpu_lanes): at most {} GPUs",
                        p.gpu.count - behind_switch, lanes, needed, *p.host.gpu_lanes, *p.host.gpu_lanes / lanes));
  return needed <= *p.host.gpu_lanes;
}

}  // namespace

Bytes resident_bytes(const host::SystemNeeds& needs, host::Place home) {
  Bytes sum;
  for (const host::Resident& resident : needs.residents)
    if (resident.home == home) sum += resident.bytes;
  return sum;
}

host::SystemNeeds needs_at(const Scenario& s, const GenerationWorkload& work, host::Place home,
                           const host::BatchLengths& lengths) {
  const std::uint32_t gpus = s.platform.gpu.count;
  if (home != host::Place::gpu() || gpus == 1) return s.system->needs(planned_run(s, lengths));
  const std::vector<host::Share> parts = host::even_shares(lengths.batch(), work.mini_batches_of(s, lengths.batch()));
  host::SystemNeeds most;
  for (std::uint32_t gpu = 0; gpu < gpus; ++gpu) {
    host::SystemNeeds needs = s.system->needs(planned_run(s, lengths_on(gpu, gpus, parts, lengths)));
    if (gpu == 0 || resident_bytes(needs, home) > resident_bytes(most, home)) most = std::move(needs);
  }
  return most;
}

bool check_gpus(Checker& c, const GenerationWorkload& work) {
  if (!check_lanes(c)) return false;
  const Scenario& s = c.scenario();
  const std::uint32_t gpus = s.platform.gpu.count;
  const std::uint32_t parts = work.mini_batches_of(s, work.batch);
  if (parts >= gpus) return true;
  if (work.batch < gpus)
    c.require(false, {"platform.gpu.count", "workload.batch"},
              fmt::format("platform.gpu.count: {} GPUs for a batch of {}: each computes at least one sequence; a batch "
                          "of {} or {} GPUs would do",
                          gpus, work.batch, gpus, work.batch));
  else
    c.require(false, {"platform.gpu.count", "workload.mini_batches"},
              fmt::format("platform.gpu.count: {} GPUs for {} mini-batches (workload.mini_batches): each computes at "
                          "least one; {} mini-batches or {} GPUs would do",
                          gpus, parts, gpus, parts));
  return false;
}

}  // namespace csdsim::experiment
