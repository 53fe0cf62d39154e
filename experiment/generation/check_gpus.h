// Checks of a generation on several GPUs.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Bytes of the residents of a home.
Bytes resident_bytes(const host::SystemNeeds& needs, host::Place home);

/// What the system needs for sequences of these lengths; for data in GPU memory, on the GPU that needs most.
host::SystemNeeds needs_at(const scenario::Scenario& scenario, const GenerationWorkload& work, host::Place home,
                           const host::BatchLengths& lengths);

/// Every GPU computes at least one mini-batch. Returns false, and records the error, if one has none.
bool check_gpus(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
