// Time and work of a stretch of simulated time, to be added, scaled and compared.
#pragma once

#include <array>
#include <type_traits>
#include <vector>

#include "csd_model/drive_totals.h"
#include "csd_model/station_times.h"
#include "host_runtime/core/plan/operation.h"
#include "platform/shared_links.h"

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// Busy and waiting time of a resource, in seconds. A request waits while the resource serves others; waiting times are
/// summed over the requests.
struct ResourceWork {
  double busy_s = 0;
  double waited_s = 0;
};

/// The work of the drives together, of the resources of plans and of the links that they share, as its owners count it:
/// real numbers and nothing else, times in seconds.
struct PhaseWork : csd_model::DriveWork {
  double seconds = 0;  ///< length of the stretch
  /// By host::ResourceKind, summed over GPUs and their links; of the host the operations of plans only, not the
  /// handling of commands.
  std::array<ResourceWork, host::kResourceKinds> resources{};
  ResourceWork host_io;       ///< cores that handle commands
  double gpu_link_bytes = 0;  ///< payload of copies over the links of the GPUs, both directions
  std::array<platform::LinkUse, platform::kSharedLinkKinds> shared{};  ///< [SharedLinkKind], summed over the GPUs
  csd_model::StationTimes stations;                                    ///< summed over the drives

  ResourceWork& of(host::ResourceKind kind) { return resources[static_cast<std::size_t>(kind)]; }
  const ResourceWork& of(host::ResourceKind kind) const { return resources[static_cast<std::size_t>(kind)]; }
  double gpu_busy_s() const { return of(host::ResourceKind::gpu).busy_s; }
  const platform::LinkUse& of(platform::SharedLinkKind kind) const { return shared[static_cast<std::size_t>(kind)]; }
};

/// The numbers of a PhaseWork, to treat them one by one.
using PhaseNumbers = std::array<double, sizeof(PhaseWork) / sizeof(double)>;
static_assert(std::is_trivially_copyable_v<PhaseWork> && sizeof(PhaseNumbers) == sizeof(PhaseWork));

struct PhaseTotals : PhaseWork {
  std::vector<double> features;  ///< host::RunFeatures::counts(); empty: none
};

/// a + factor * b.
PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b);
PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b);

/// What the drives and the shared links of the platform have done since the start of the simulation; nothing of
/// processors and their link.
PhaseTotals totals_of(platform::Platform& platform);

}  // namespace csdsim::experiment
