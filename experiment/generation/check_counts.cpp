#include "experiment/generation/check_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace csdsim::experiment {

using scenario::Checker;
using scenario::Scenario;

namespace {

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

bool check_drive_count(Checker& c, const host::BatchLengths& workload) {
  const Scenario& s = c.scenario();
  const std::uint32_t drives = s.platform.device.count, heads = s.model.kv_heads;
  const auto enough = [&](const host::OffloadSystem& system) {
    const host::SystemNeeds needs = system.needs({.model = s.model.shape(), .workload = workload});
    return needs.kv != host::Place::drive_kv() || needs.shard == host::ShardBy::token || drives <= heads;
  };
  if (!enough(*s.system)) {
    c.require(false, {"platform.device.count", "model.kv_heads"},
              fmt::format("platform.device.count: {} drives for {} KV heads: with system.shard: head a drive holds at "
                          "least one; instinfer-dense with shard: token divides the tokens over any number of drives",
                          drives, heads));
    return false;
  }
  bool all = true;
  for (const std::string& other : s.simulation.compare) {
    if (other == scenario::kHostComparison || other == s.system.kind() || enough(*s.system.kinds().make(other)))
      continue;
    c.require(false, {"simulation.compare", "platform.device.count", "model.kv_heads"},
              fmt::format("simulation.compare: {} divides {} KV heads over {} drives: a drive holds at least one",
                          other, heads, drives));
    all = false;
  }
  return all;
}

}  // namespace csdsim::experiment
