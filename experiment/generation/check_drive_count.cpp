#include "experiment/generation/check_drive_count.h"

#include <fmt/format.h>

#include <string_view>

namespace csdsim::experiment {

bool check_drive_count(scenario::Checker& c, const host::BatchLengths& workload) {
  const scenario::Scenario& s = c.scenario();
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
