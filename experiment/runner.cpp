#include "experiment/runner.h"

#include "experiment/kinds.h"

namespace csdsim::experiment {

RunResult run_scenario(const scenario::Scenario& scenario, const RunOptions& options) {
  if (std::holds_alternative<scenario::BlockIoWorkload>(scenario.workload))
    return run_block_io_scenario(scenario, options);
  if (std::holds_alternative<scenario::TraceWorkload>(scenario.workload)) return run_trace_scenario(scenario, options);
  if (std::holds_alternative<scenario::PolicyWorkload>(scenario.workload))
    return run_policy_scenario(scenario, options);
  return run_generation_scenario(scenario, options);
}

}  // namespace csdsim::experiment
