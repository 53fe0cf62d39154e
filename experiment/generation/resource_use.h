// How long the resources of a platform work in a phase of a generation.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "experiment/generation/phase_totals.h"

namespace csdsim::experiment {

/// How many of each resource there are.
struct ResourceCounts {
  double drives = 1, gpus = 1;
  double channels = 1, planes = 1;  ///< of a drive
  bool behind_switch = false;       ///< the engine of a drive
};

/// Seconds in which a resource of each kind works, the mean over those that there are; of two directions the busier
/// one. What a system does not use is left out.
std::vector<std::pair<const char*, double>> busy_times(const PhaseTotals& phase, const ResourceCounts& counts);

/// The largest of them: the phase cannot be shorter.
double busiest_s(const PhaseTotals& phase, const ResourceCounts& counts);

}  // namespace csdsim::experiment
