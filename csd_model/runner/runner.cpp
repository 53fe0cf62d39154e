#include "csd_model/runner/runner.h"

#include "csd_model/runner/kinds.h"

namespace csd_model {

RunResult run_scenario(const csdsim::scenario::Scenario& scenario, const RunOptions& options) {
  if (std::holds_alternative<csdsim::scenario::BlockIoWorkload>(scenario.workload))
    return run_block_io_scenario(scenario, options);
  if (std::holds_alternative<csdsim::scenario::TraceWorkload>(scenario.workload))
    return run_trace_scenario(scenario, options);
  if (std::holds_alternative<csdsim::scenario::PolicyWorkload>(scenario.workload))
    return run_policy_scenario(scenario, options);
  return run_generation_scenario(scenario, options);
}

}  // namespace csd_model
