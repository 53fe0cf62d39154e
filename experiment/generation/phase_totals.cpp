#include "experiment/generation/phase_totals.h"

#include <algorithm>

#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"

namespace csdsim::experiment {

PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b) {
  for (const auto field : kPhaseFields) a.*field += factor * b.*field;
  for (std::size_t i = 0; i < ResourceTimes::kCount; ++i) a.times.values[i] += factor * b.times.values[i];
  a.features.resize(std::max(a.features.size(), b.features.size()));
  for (std::size_t i = 0; i < b.features.size(); ++i) a.features[i] += factor * b.features[i];
  return a;
}

PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b) { return combine(a, -1, b); }

PhaseTotals totals_of(platform::Platform& platform) {
  PhaseTotals sum;
  sum.seconds = sim_time_now().seconds();
  for (std::uint32_t i = 0; i < platform.drives(); ++i) {
    csd_model::DriveWork& of_drives = sum;
    of_drives += work_of(platform.drive(i).totals());
    const csd_model::StationTimes stations = platform.drive(i).station_times();
    for (std::size_t s = 0; s < kDriveStations; ++s) {
      const auto station = static_cast<DriveStation>(s);
      sum.times.busy(station) += stations.busy[station];
      sum.times.waited(station) += stations.waited[station];
    }
  }
  sum.times.host_io_busy() = platform.io_cores().busy_until(sim_time_now()).seconds();
  sum.times.host_io_waited() = platform.io_cores().waited().seconds();
  for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind) {
    const platform::LinkUse use = platform.shared_links().use(static_cast<platform::SharedLinkKind>(kind));
    sum.*kSharedBytes[kind] = use.bytes;
    sum.*kSharedBusy[kind] = use.busy_s;
    sum.times.waited(static_cast<platform::SharedLinkKind>(kind)) = use.waited_s;
  }
  return sum;
}

}  // namespace csdsim::experiment
