// One function a kind of workload: from the scenario to the result.
#pragma once

#include "experiment/runner.h"

namespace csdsim::experiment {

RunResult run_block_io_scenario(const scenario::Scenario& scenario, const RunOptions& options);
RunResult run_trace_scenario(const scenario::Scenario& scenario, const RunOptions& options);
RunResult run_policy_scenario(const scenario::Scenario& scenario, const RunOptions& options);
RunResult run_generation_scenario(const scenario::Scenario& scenario, const RunOptions& options);

}  // namespace csdsim::experiment
