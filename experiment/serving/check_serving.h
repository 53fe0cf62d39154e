// Checks a serving workload against its machine.
#pragma once

#include "experiment/serving/serving_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Reads or makes the trace, then checks policies, blocks, memories and tiers. Records what is wrong.
void check_serving(scenario::Checker& c, ServingWorkload& work);

}  // namespace csdsim::experiment
