// The requests of a serving run.
#pragma once

#include "experiment/serving/serving_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Reads or makes the trace and sets its arrivals. Null after recording an error.
std::shared_ptr<const host::ServingTrace> serving_trace(scenario::Checker& c, ServingWorkload& work);

}  // namespace csdsim::experiment
