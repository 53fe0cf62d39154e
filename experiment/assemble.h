// What modules need to know of a whole scenario: its seed, its data mode, what it keeps in the KV namespace.
#pragma once

#include "platform/platform.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Everything of a drive but its selection source.
csd_model::DriveConfig drive_config(const scenario::Scenario& scenario);

platform::PlatformParams platform_params(const scenario::Scenario& scenario);

}  // namespace csdsim::experiment
