// What modules need to know of a whole scenario: its seed, its data mode, what it keeps in the KV namespace.
#pragma once

#include "experiment/generation/generation_run.h"
#include "platform/platform.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Everything of a drive but its selection source.
csd_model::DriveConfig drive_config(const scenario::Scenario& scenario);

platform::PlatformParams platform_params(const scenario::Scenario& scenario);

/// Plan, GPU and platform of a generation scenario; `prompt_tokens` are the lengths of its prompts. `data` is left
/// null.
GenerationSetup generation_setup(const scenario::Scenario& scenario, std::vector<std::uint32_t> prompt_tokens);

}  // namespace csdsim::experiment
