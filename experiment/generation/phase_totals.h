// Time and work of a stretch of simulated time, to be added, scaled and compared.
#pragma once

#include <array>
#include <tuple>
#include <vector>

#include "base/drive_station.h"
#include "csd_model/drive_totals.h"
#include "host_runtime/core/planner/operation.h"
#include "platform/shared_links.h"

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// Busy and waiting times of resources, in seconds. A request waits while the resource serves others; waiting times are
/// summed over the requests, busy times of stations over the drives.
struct ResourceTimes {
  static constexpr std::size_t kCount = 2 * kDriveStations + 2 + host::kResourceKinds + platform::kSharedLinkKinds;
  std::array<double, kCount> values{};

  double& busy(DriveStation station) { return values[static_cast<std::size_t>(station)]; }
  double& waited(DriveStation station) { return values[kDriveStations + static_cast<std::size_t>(station)]; }
  double& host_io_busy() { return values[2 * kDriveStations]; }
  double& host_io_waited() { return values[2 * kDriveStations + 1]; }
  double& waited(host::ResourceKind kind) { return values[2 * kDriveStations + 2 + static_cast<std::size_t>(kind)]; }
  double& waited(platform::SharedLinkKind kind) {
    return values[2 * kDriveStations + 2 + host::kResourceKinds + static_cast<std::size_t>(kind)];
  }
};

/// The work of the drives together, and that of processors and the GPU's link, over a stretch of simulated time. All
/// times are in seconds.
struct PhaseTotals : csd_model::DriveWork {
  double seconds = 0;             ///< length of the stretch
  double gpu_busy_s = 0;          ///< summed over the GPUs
  double host_busy_s = 0;         ///< operations of plans only, not the handling of commands
  double host_to_gpu_busy_s = 0;  ///< the links of all GPUs, by direction
  double gpu_to_host_busy_s = 0;
  double gpu_link_bytes = 0;  ///< payload of copies over these links, both directions
  // Shared links of the platform by direction, summed over the GPUs: payload, and time that it takes on the link.
  double gpu_in_bytes = 0, gpu_out_bytes = 0, root_in_bytes = 0, root_out_bytes = 0;
  double switch_up_bytes = 0, switch_down_bytes = 0;
  double gpu_in_busy_s = 0, gpu_out_busy_s = 0, root_in_busy_s = 0, root_out_busy_s = 0;
  double switch_up_busy_s = 0, switch_down_busy_s = 0;
  ResourceTimes times;
  std::vector<double> features;  ///< host::RunFeatures::counts(); empty: none
};

/// The fields of shared links, [SharedLinkKind].
inline constexpr std::array<double PhaseTotals::*, platform::kSharedLinkKinds> kSharedBytes{
    &PhaseTotals::gpu_in_bytes,   &PhaseTotals::gpu_out_bytes,   &PhaseTotals::root_in_bytes,
    &PhaseTotals::root_out_bytes, &PhaseTotals::switch_up_bytes, &PhaseTotals::switch_down_bytes};
inline constexpr std::array<double PhaseTotals::*, platform::kSharedLinkKinds> kSharedBusy{
    &PhaseTotals::gpu_in_busy_s,   &PhaseTotals::gpu_out_busy_s,   &PhaseTotals::root_in_busy_s,
    &PhaseTotals::root_out_busy_s, &PhaseTotals::switch_up_busy_s, &PhaseTotals::switch_down_busy_s};

/// All fields but `times` and `features`, to treat them one by one.
inline constexpr auto kPhaseFields =
    std::apply([](auto... fields) { return std::array<double PhaseTotals::*, sizeof...(fields)>{fields...}; },
               std::tuple_cat(csd_model::DriveWork::fields(),
                              std::tuple(&PhaseTotals::seconds, &PhaseTotals::gpu_busy_s, &PhaseTotals::host_busy_s,
                                         &PhaseTotals::host_to_gpu_busy_s, &PhaseTotals::gpu_to_host_busy_s,
                                         &PhaseTotals::gpu_link_bytes),
                              kSharedBytes, kSharedBusy));

/// a + factor * b.
PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b);
PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b);

/// What the drives and the shared links of the platform have done since the start of the simulation; nothing of
/// processors and their link.
PhaseTotals totals_of(platform::Platform& platform);

}  // namespace csdsim::experiment
