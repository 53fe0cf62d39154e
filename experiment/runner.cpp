#include "experiment/runner.h"

namespace csdsim::experiment {

RunResult run_scenario(const scenario::Scenario& scenario, const RunOptions& options) {
  return scenario.workload->run(scenario, options);
}

}  // namespace csdsim::experiment
