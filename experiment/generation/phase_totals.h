// Time and work of a stretch of simulated time, to be added, scaled and compared.
#pragma once

#include <array>
#include <tuple>

#include "csd_model/drive_totals.h"

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// The work of the drives together, and that of processors and the GPU's link, over a stretch of simulated time. All
/// times are in seconds.
struct PhaseTotals : csd_model::DriveWork {
  double seconds = 0;             ///< length of the stretch
  double gpu_busy_s = 0;          ///< summed over the GPUs
  double host_busy_s = 0;         ///< operations of plans only, not the handling of commands
  double host_to_gpu_busy_s = 0;  ///< the links of all GPUs, by direction
  double gpu_to_host_busy_s = 0;
  double gpu_link_bytes = 0;  ///< payload of copies over these links, both directions
};

/// All fields, to treat them one by one.
inline constexpr auto kPhaseFields = std::apply(
    [](auto... of_drives) {
      return std::array<double PhaseTotals::*, sizeof...(of_drives) + 6>{of_drives...,
                                                                         &PhaseTotals::seconds,
                                                                         &PhaseTotals::gpu_busy_s,
                                                                         &PhaseTotals::host_busy_s,
                                                                         &PhaseTotals::host_to_gpu_busy_s,
                                                                         &PhaseTotals::gpu_to_host_busy_s,
                                                                         &PhaseTotals::gpu_link_bytes};
    },
    csd_model::DriveWork::fields());

/// a + factor * b.
PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b);
PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b);

/// What the drives of the platform have done since the start of the simulation; nothing of processors and their link.
PhaseTotals totals_of(platform::Platform& platform);

}  // namespace csdsim::experiment
