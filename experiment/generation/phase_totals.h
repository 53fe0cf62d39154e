// Time and work of a stretch of simulated time, to be added, scaled and compared.
#pragma once

#include <array>
#include <tuple>

#include "csd_model/drive_totals.h"

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// The drives' work together, and the GPU's, over a stretch of simulated time. All times are in seconds.
struct PhaseTotals : csd_model::DriveWork {
  double seconds = 0;  ///< length of the stretch
  double gpu_busy_s = 0;
};

/// All fields, to treat them one by one.
inline constexpr auto kPhaseFields = std::apply(
    [](auto... of_drives) {
      return std::array<double PhaseTotals::*, sizeof...(of_drives) + 2>{of_drives..., &PhaseTotals::seconds,
                                                                         &PhaseTotals::gpu_busy_s};
    },
    csd_model::DriveWork::fields());

/// a + factor * b.
PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b);
PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b);

/// What the drives of the platform have done since the start of the simulation; nothing of the GPU.
PhaseTotals totals_of(platform::Platform& platform);

}  // namespace csdsim::experiment
