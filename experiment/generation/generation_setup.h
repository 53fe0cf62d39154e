// From a scenario that generates to what a generation run is told.
#pragma once

#include <cstdint>
#include <vector>

#include "experiment/generation/generation_run.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// What is simulated of a run first, if it is sampled.
host::SamplingSettings first_sample(const host::OffloadSystem& system, const host::PlannerInputs& plan);

/// Plan, GPU and platform of a generation scenario; `prompt_tokens` are the lengths of its prompts. `data` is left
/// null.
GenerationSetup generation_setup(const scenario::Scenario& scenario, const std::vector<std::uint32_t>& prompt_tokens);

}  // namespace csdsim::experiment
