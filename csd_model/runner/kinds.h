// One function a kind of workload: from the scenario to the result.
#pragma once

#include "csd_model/runner/runner.h"

namespace csd_model {

RunResult run_block_io_scenario(const csdsim::scenario::Scenario& scenario, const RunOptions& options);
RunResult run_trace_scenario(const csdsim::scenario::Scenario& scenario, const RunOptions& options);
RunResult run_policy_scenario(const csdsim::scenario::Scenario& scenario, const RunOptions& options);
RunResult run_generation_scenario(const csdsim::scenario::Scenario& scenario, const RunOptions& options);

}  // namespace csd_model
