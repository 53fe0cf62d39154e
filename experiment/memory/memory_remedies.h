// Parameters with which a generation run would need less GPU memory, for the message where it does not suffice.
#pragma once

#include <vector>

#include "experiment/generation/generation_run.h"
#include "host_runtime/core/plan/tensor_ledger.h"

namespace csdsim::experiment {

/// Parameters that a system has and with which tensors of a class would take less GPU memory, apart from those that
/// have the best value already.
std::vector<host::MemoryRemedy> memory_remedies(const host::OffloadSystem& system);

/// The same, with those of the workload.
std::vector<host::MemoryRemedy> memory_remedies(const GenerationSetup& setup);

}  // namespace csdsim::experiment
