// Checks of a generation on several GPUs.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// What the system needs for sequences of these lengths; for data in GPU memory, on the GPU with the most sequences.
host::SystemNeeds needs_at(const scenario::Scenario& scenario, const GenerationWorkload& work, host::Home home,
                           host::BatchLengths lengths);

/// Every GPU computes at least one mini-batch. Returns false, and records the error, if one has none.
bool check_gpus(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
