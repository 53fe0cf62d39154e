// Simulated time in the NVMe modules.
#pragma once

#include "simulation/sim_time.h"

namespace csdsim::nvme {

inline SimTime sim_now() { return sim_time_now(); }

using csdsim::check_time_resolution;
using csdsim::to_sc_time;

}  // namespace csdsim::nvme
