// The clocks and the power limit of the current GPU.
#pragma once

#include <string>

namespace csdsim::host::cuda {

/// Values at the time of the call; 0 where the driver does not state one.
struct Conditions {
  double sm_mhz = 0, memory_mhz = 0;
  double most_sm_mhz = 0, most_memory_mhz = 0;
  double power_limit_w = 0;
  std::string source;  ///< "NVML", or "CUDA" where there is no NVML: it states the highest clocks only
};

/// NVML comes with the driver and is loaded at run time.
Conditions present_conditions();

}  // namespace csdsim::host::cuda
