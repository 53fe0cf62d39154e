// Parameters with which a generation run would need less GPU memory, for the message where it does not suffice.
#pragma once

#include <nlohmann/json.hpp>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "host_runtime/core/plan/tensor_ledger.h"

namespace csdsim::experiment {

/// The parameters of a system, as results state them.
nlohmann::ordered_json parameters_of(const host::OffloadSystem& system);

/// Those that the system of the run has, and that would change something in it.
std::vector<host::MemoryRemedy> memory_remedies(const GenerationSetup& setup);

}  // namespace csdsim::experiment
