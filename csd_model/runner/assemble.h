// From a scenario to the configurations of the modules: the only place that knows both.
#pragma once

#include "csd_model/generation/generation_run.h"
#include "csd_model/platform/platform.h"
#include "csd_model/scenario/scenario.h"

namespace csd_model {

/// Everything of a drive but its selection source.
DriveConfig drive_config(const csdsim::scenario::Scenario& scenario);

PlatformConfig platform_config(const csdsim::scenario::Scenario& scenario);

csdsim::host::GpuParameters gpu_parameters(const csdsim::scenario::GpuConfig& gpu);

/// Plan, GPU and platform of a generation scenario; `prompt_tokens` are the lengths of its prompts. `data` is left
/// null.
GenerationSetup generation_setup(const csdsim::scenario::Scenario& scenario, std::vector<std::uint32_t> prompt_tokens);

}  // namespace csd_model
