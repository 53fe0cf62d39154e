// Counts of a stretch of simulated time, to be added, scaled and compared.
#pragma once

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// Totals over a stretch of simulated time. Bytes and operations of the drives together.
struct PhaseTotals {
  double seconds = 0;
  double page_ops = 0;
  double flash_channel_bytes = 0;
  double engine_bytes = 0;
  double link_bytes = 0;
  double channel_busy_s = 0;  ///< summed over channels
  double read_busy_s = 0;     ///< tR, summed over planes
  double program_busy_s = 0;  ///< tPROG, summed over planes
  double erase_busy_s = 0;    ///< tBERS, summed over planes
  double gpu_busy_s = 0;
  double programmed_bytes = 0;
  double to_host_busy_s = 0;  ///< links of all drives, by direction
  double to_drive_busy_s = 0;
  double dram_bytes = 0;
  double macs = 0;

  double array_busy_s() const { return read_busy_s + program_busy_s + erase_busy_s; }
};

/// All fields, to treat them one by one.
inline constexpr double PhaseTotals::*kPhaseFields[] = {
    &PhaseTotals::seconds,         &PhaseTotals::page_ops,         &PhaseTotals::flash_channel_bytes,
    &PhaseTotals::engine_bytes,    &PhaseTotals::link_bytes,       &PhaseTotals::channel_busy_s,
    &PhaseTotals::read_busy_s,     &PhaseTotals::program_busy_s,   &PhaseTotals::erase_busy_s,
    &PhaseTotals::gpu_busy_s,      &PhaseTotals::programmed_bytes, &PhaseTotals::to_host_busy_s,
    &PhaseTotals::to_drive_busy_s, &PhaseTotals::dram_bytes,       &PhaseTotals::macs};

/// a + factor * b.
PhaseTotals combine(PhaseTotals a, double factor, const PhaseTotals& b);
PhaseTotals operator-(const PhaseTotals& a, const PhaseTotals& b);

/// What the drives of the platform have done so far; nothing of the GPU.
PhaseTotals totals_of(platform::Platform& platform);

}  // namespace csdsim::experiment
