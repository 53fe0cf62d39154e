#include "experiment/generation/phase_totals.h"

#include "csd_model/energy.h"
#include "nfc/sysc/sim_time.h"
#include "platform/platform.h"

namespace csdsim::experiment {

PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b) {
  for (const auto field : kPhaseFields) a.*field += factor * b.*field;
  return a;
}

PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b) { return combine(a, -1, b); }

PhaseTotals totals_of(platform::Platform& platform) {
  PhaseTotals sum{.seconds = sim_time_now().seconds()};
  for (std::uint32_t i = 0; i < platform.drives(); ++i) {
    const csd_model::Drive& drive = platform.drive(i);
    const csd_model::DriveCounters c = drive.counters();
    sum.page_ops += static_cast<double>(c.page_ops);
    sum.flash_channel_bytes += static_cast<double>(c.flash_channel_bytes);
    sum.engine_bytes += static_cast<double>(c.engine_bytes);
    sum.link_bytes += static_cast<double>(c.link_payload_bytes);
    sum.to_host_busy_s += drive.link().stats(nvme::LinkDirection::to_host).busy.seconds();
    sum.to_drive_busy_s += drive.link().stats(nvme::LinkDirection::to_drive).busy.seconds();
    for (const auto& by_kind : drive.flash_statistics().bytes)
      sum.programmed_bytes += static_cast<double>(by_kind[static_cast<std::size_t>(PageOpKind::program)]);
    for (const nfc::ChannelBusy& busy : drive.flash_statistics().channels) sum.channel_busy_s += busy.total().seconds();
    const csd_model::EnergyInputs work = csd_model::energy_inputs(drive);
    sum.read_busy_s += work.read_s;
    sum.program_busy_s += work.program_s;
    sum.erase_busy_s += work.erase_s;
    sum.dram_bytes += work.dram_bytes;
    sum.macs += work.macs;
  }
  return sum;
}

}  // namespace csdsim::experiment
