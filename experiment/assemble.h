// From a scenario to the configurations of the modules: the only place that knows both.
#pragma once

#include "host_runtime/core/planner/gpu_model.h"
#include "platform/platform.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Everything of a drive but its selection source.
csd_model::DriveConfig drive_config(const scenario::Scenario& scenario);

platform::PlatformConfig platform_config(const scenario::Scenario& scenario);

host::GpuParameters gpu_parameters(const scenario::GpuConfig& gpu);

}  // namespace csdsim::experiment
