#include "experiment/generation/phase_totals.h"

#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"

namespace csdsim::experiment {

PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b) {
  for (const auto field : kPhaseFields) a.*field += factor * b.*field;
  return a;
}

PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b) { return combine(a, -1, b); }

PhaseTotals totals_of(platform::Platform& platform) {
  PhaseTotals sum;
  sum.seconds = sim_time_now().seconds();
  for (std::uint32_t i = 0; i < platform.drives(); ++i) {
    csd_model::DriveWork& of_drives = sum;
    of_drives += work_of(platform.drive(i).totals());
  }
  for (std::size_t kind = 0; kind < platform::kSharedLinkKinds; ++kind) {
    const platform::LinkUse use = platform.shared_links().use(static_cast<platform::SharedLinkKind>(kind));
    sum.*kSharedBytes[kind] = use.bytes;
    sum.*kSharedBusy[kind] = use.busy_s;
  }
  return sum;
}

}  // namespace csdsim::experiment
