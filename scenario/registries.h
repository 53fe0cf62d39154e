// The open choices of a scenario.
#pragma once

#include <memory>

#include "host_runtime/core/planner/system.h"
#include "scenario/experiment.h"

namespace csdsim::scenario {

/// What `system.kind` and `workload.kind` can be. Plugins add to a copy.
struct Registries {
  host::SystemKinds systems{"offload system"};
  ExperimentKinds experiments{"workload"};
};

}  // namespace csdsim::scenario
