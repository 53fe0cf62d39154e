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
  return sum;
}

}  // namespace csdsim::experiment
