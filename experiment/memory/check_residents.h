// Checks that the data that a system keeps all the time fit.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Checks that the resident data of the system fits into GPU memory, host memory and the block namespaces of the
/// drives. The error says what would fit.
void check_residents(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
