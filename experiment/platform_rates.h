// Rates and sizes of a scenario's platform, for systems that choose parameters by them.
#pragma once

#include "host_runtime/core/plan/searched_system.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

host::PlatformRates platform_rates(const scenario::Scenario& s);

}  // namespace csdsim::experiment
