// The data that a system keeps all the time, and whether they fit.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Bytes of the residents of a home.
Bytes resident_bytes(const host::SystemNeeds& needs, host::Place home);

/// What the system needs for sequences of these lengths; for data in GPU memory, on the GPU that needs most.
host::SystemNeeds needs_at(const scenario::Scenario& scenario, const GenerationWorkload& work, host::Place home,
                           const host::BatchLengths& lengths);

/// Checks that the resident data of the system fits into GPU memory, host memory and the block namespaces of the
/// drives. The error says what would fit.
void check_residents(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
