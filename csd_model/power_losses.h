// Counts of the losses of power of a drive.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim::csd_model {

/// Counts of a drive's losses of power so far.
struct PowerLosses {
  std::uint64_t cuts = 0;
  std::uint64_t torn_programs = 0;   ///< word lines
  std::uint64_t half_erases = 0;     ///< blocks
  std::uint64_t lost_units = 0;      ///< mapping units whose newest version was in DRAM only and was not promised
  std::uint64_t lost_protected = 0;  ///< the same, promised: for which the energy of the capacitors was not enough
  std::uint64_t lost_sequences = 0;  ///< sequences of the KV namespace for which the energy was not enough
  std::uint64_t dumped_units = 0;
  std::uint64_t dumped_pages = 0;  ///< pages of K and V that were dumped
  Bytes dumped{};  ///< by capacitors, with page numbers and trims, and what the KV namespace had in DRAM
  SimTime dump_time{};
  double dump_joules = 0;
  std::uint64_t scanned_pages = 0;  ///< mapping units, and pages of K and V, whose out-of-band metadata was looked at
  std::uint64_t stale_units = 0;    ///< found, and older than others, or of no sequence
  std::uint64_t recoveries = 0;     ///< that have ended
  SimTime recovery_time{};          ///< from power-on until the controller answers, summed over recoveries
  SimTime longest_recovery{};
};

}  // namespace csdsim::csd_model
