// Checks of the workload that compares mapping policies, for check_workload().
#pragma once

#include "scenario/check.h"

namespace csdsim::scenario {

/// Refuses what has no part in it. Finds the recorded selection.
void check_policies(Checker& c, const PolicyWorkload& work);

}  // namespace csdsim::scenario
