// Runs a workload of objects, with or without time.
#pragma once

#include "experiment/objects/object_workload.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

scenario::RunResult run_objects(const scenario::Scenario& scenario, const ObjectWorkload& work,
                                const scenario::RunOptions& options);

}  // namespace csdsim::experiment
