// From a scenario to the configurations of the modules: the only place that knows both.
#pragma once

#include "experiment/generation/generation_run.h"
#include "platform/platform.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Everything of a drive but its selection source.
csd_model::DriveConfig drive_config(const scenario::Scenario& scenario);

platform::PlatformConfig platform_config(const scenario::Scenario& scenario);

host::GpuParameters gpu_parameters(const scenario::GpuConfig& gpu);

/// Plan, GPU and platform of a generation scenario; `prompt_tokens` are the lengths of its prompts. `data` is left
/// null.
GenerationSetup generation_setup(const scenario::Scenario& scenario, std::vector<std::uint32_t> prompt_tokens);

}  // namespace csdsim::experiment
