// The time of this machine while a system was simulated and a real GPU computed.
#pragma once

#include "experiment/generation/generation_run.h"
#include "host_runtime/core/decoder/backend.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Adds wall.device (the GPU's compute and copies, and how long the host waited for them), wall.simulation_s (the rest
/// of `run_s`) and stats.simulated_drive_wait_s: how long a real host would wait with an idle GPU, in simulated time.
/// Adds to the meaning of the result what these metrics are.
void add_host_time(scenario::RunResult& result, const host::DeviceTimes& device, double run_s,
                   const GenerationOutcome& out);

}  // namespace csdsim::experiment
