#include "experiment/runner.h"

namespace csdsim::experiment {

scenario::RunResult run_scenario(const scenario::Scenario& scenario, const scenario::RunOptions& options) {
  return scenario.workload->run(scenario, options);
}

}  // namespace csdsim::experiment
