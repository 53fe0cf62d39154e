#include "experiment/measure/power_outcome.h"

#include "platform/platform.h"

namespace csdsim::experiment {

std::optional<PowerOutcome> power_outcome(platform::Platform& platform) {
  if (platform.power_cuts() == nullptr) return std::nullopt;
  csd_model::Drive& drive = platform.drive(0);
  return PowerOutcome{drive.power_losses(), drive.controller().core().events().unsafe_shutdowns(),
                      platform.driver(0).reissued()};
}

const std::vector<PowerMetric>& power_metrics() {
  static const std::vector<PowerMetric> metrics{
      {{"power_cuts", "1", "With platform.device.nvme.power: losses of power in the whole run, as all that follows."},
       [](const PowerOutcome& p) { return double(p.losses.cuts); }},
      {{"unsafe_shutdowns", "1", "Of them, as the SMART log page counts those that no shutdown preceded."},
       [](const PowerOutcome& p) { return double(p.unsafe_shutdowns); }},
      {{"recovery_mean_ns", "ns", "Mean time from the return of the power until the controller answered."},
       [](const PowerOutcome& p) {
         const double ends = static_cast<double>(p.losses.recoveries);
         return ends > 0 ? p.losses.recovery_time.seconds() * 1e9 / ends : 0;
       },
       false},
      {{"recovery_max_ns", "ns", "The longest of them."},
       [](const PowerOutcome& p) { return p.losses.longest_recovery.seconds() * 1e9; },
       false},
      {{"commands_reissued", "1", "Commands that a cut interrupted and the driver issued again."},
       [](const PowerOutcome& p) { return double(p.reissued); }},
      {{"torn_word_lines", "1", "Word lines whose program a cut interrupted."},
       [](const PowerOutcome& p) { return double(p.losses.torn_programs); }},
      {{"half_erased_blocks", "1", "Blocks whose erase a cut interrupted."},
       [](const PowerOutcome& p) { return double(p.losses.half_erases); }},
      {{"units_lost", "1", "Mapping units whose newest version was in DRAM at a cut; nothing had promised it."},
       [](const PowerOutcome& p) { return double(p.losses.lost_units); }},
      {{"promised_units_lost", "1", "The same, promised: the energy of the capacitors was not enough for them."},
       [](const PowerOutcome& p) { return double(p.losses.lost_protected); }},
      {{"dump_bytes", "B", "What capacitors wrote to flash at the cuts."},
       [](const PowerOutcome& p) { return double(p.losses.dumped.value); }},
      {{"dump_time_ns", "ns", "The time that it took."},
       [](const PowerOutcome& p) { return p.losses.dump_time.seconds() * 1e9; },
       false},
      {{"dump_energy_j", "J", "The energy that it took."},
       [](const PowerOutcome& p) { return p.losses.dump_joules; },
       false}};
  return metrics;
}

}  // namespace csdsim::experiment
