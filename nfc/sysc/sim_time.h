// Simulated time in the flash models.
#pragma once

#include "simulation/sim_time.h"  // IWYU pragma: export
