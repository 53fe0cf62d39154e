// Use of each resource in a phase of a run, and the resource that bounds the phase.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/measure/phase_totals.h"
#include "host_runtime/core/plan/metrics.h"

namespace csdsim::experiment {

struct ResourceUse {
  std::string name;
  double busy_s = 0;       ///< mean over the units of the resource (GPUs, drives, planes, channels, kernels)
  double waited_s = 0;     ///< by requests, while the resource served others; summed over the requests
  double utilization = 0;  ///< busy_s over the time of the phase
  double path_s = 0;       ///< seconds on the critical path, where there is one
};

/// How many of each resource there are.
struct ResourceCounts {
  double drives = 1, gpus = 1;
  double io_cores = 1;  ///< cores of the host that serve the I/O queues
};

/// The resources that are used, in the order from the GPU to the units of the drives. `path` is the critical path by
/// host::PathResource; null: the phase has none.
std::vector<ResourceUse> resource_use(const PhaseTotals& phase, const ResourceCounts& counts,
                                      const std::array<double, host::kPathResources>* path);

/// The resource with the largest share of the critical path; without a path, the one that is busy for the largest share
/// of the time. Page buffers are in use while their pages wait for something else, so only a path shows that they bind.
const ResourceUse& bounding(const std::vector<ResourceUse>& uses, bool by_path);

/// Lengthens decoding to the longest time that a resource is busy. Where few layers are simulated, the pace at which
/// they end may be faster than that: the first ones wait longer than the others. Returns by how much, as a share of the
/// longer time: what the resource has worked before the first step is in it, so that the true time is between the two.
double lengthen_decode(host::GenerationTimes& times, const PhaseTotals& decode, const ResourceCounts& counts);

nlohmann::ordered_json to_json(const std::vector<ResourceUse>& uses, bool with_path);

}  // namespace csdsim::experiment
