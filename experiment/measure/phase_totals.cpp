#include "experiment/measure/phase_totals.h"

#include <algorithm>
#include <bit>

#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"

namespace csdsim::experiment {

PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b) {
  PhaseWork& work = a;
  auto numbers = std::bit_cast<PhaseNumbers>(work);
  const auto more = std::bit_cast<PhaseNumbers>(static_cast<const PhaseWork&>(b));
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] += factor * more[i];
  work = std::bit_cast<PhaseWork>(numbers);
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
    sum.stations += platform.drive(i).station_times();
  }
  sum.host_io = {platform.io_cores().busy_until(sim_time_now()).seconds(), platform.io_cores().waited().seconds()};
  for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind)
    sum.shared[kind] = platform.shared_links().use(static_cast<platform::SharedLinkKind>(kind));
  return sum;
}

}  // namespace csdsim::experiment
