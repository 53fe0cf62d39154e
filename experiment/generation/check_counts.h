// Checks that every GPU and every drive of a generation has a part of the work.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Every GPU computes at least one mini-batch. Returns false, and records the error, if one has none.
bool check_gpus(scenario::Checker& c, const GenerationWorkload& work);

/// Checks that every drive has a KV head, for the system of the scenario and those that it is compared with, where they
/// divide K and V by heads. False if a drive has none. The model must be known.
bool check_drive_count(scenario::Checker& c, const host::BatchLengths& workload);

}  // namespace csdsim::experiment
