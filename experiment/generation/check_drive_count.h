// Checks that no drive is left without work where a system divides K and V over drives.
#pragma once

#include "host_runtime/core/plan/planner.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Checks that every drive has a KV head, for the system of the scenario and those that it is compared with, where they
/// divide K and V by heads. False if a drive has none. The model must be known.
bool check_drive_count(scenario::Checker& c, const host::BatchLengths& workload);

}  // namespace csdsim::experiment
