// The choices of a scenario that plugins can extend.
#pragma once

#include <memory>

#include "host_runtime/core/plan/system.h"
#include "scenario/experiment.h"

namespace csdsim::scenario {

/// The kinds of `system.kind` and `workload.kind`. Plugins add to a copy.
struct Registries {
  host::SystemKinds systems{"offload system"};
  ExperimentKinds experiments{"workload"};
};

}  // namespace csdsim::scenario
