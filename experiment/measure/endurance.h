// The life of the flash of a scenario's drives.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>

#include "base/metric.h"
#include "csd_model/exported_capacity.h"
#include "nfc/core/reliability.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

inline const MetricInfo kDriveWritesPerDay{"drive_writes_per_day", "1/day",
                                           "Requests that arrive: K and V that the host has written to the drives over "
                                           "the exported capacity of all drives, per "
                                           "day of simulated time."};
inline const MetricInfo kDriveLifetime{
    "drive_lifetime_years", "years",
    "Requests that arrive, K and V on drives: time until the flash has been programmed and erased "
    "flash.rated_cycles times, if it is always used as in this run and wears evenly; absent if nothing is written. "
    "Presets of products have the cycles that follow from the bytes written of their data sheets."};

/// Data sheets state drive writes per day over years of 365 days, and mostly 5 of them.
inline constexpr double kDaysPerYear = 365, kWarrantyYears = 5;
inline constexpr double kSecondsPerDay = 86'400, kSecondsPerYear = kDaysPerYear * kSecondsPerDay;

/// What all drives together export as block drives; a KV cache takes its share of it.
inline double exported_bytes(const scenario::Scenario& s) {
  return double(csd_model::exported_capacity(s.platform.device).value) * double(s.platform.device.count);
}

/// Bytes that all drives together can program until each block has been programmed and erased
/// flash.rated_cycles times.
inline double rated_bytes(const scenario::Scenario& s) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const FlashGeometry& flash = device.flash.geometry;
  const std::uint32_t cycles = device.flash.endurance_cycles();
  return cycles * double(flash.pages()) * double(flash.page_size.value) * double(device.count);
}

/// "8434 program/erase cycles (preset micron-9550-max-6.4tb, calibrated: Micron 9550 data sheet ...)": what a block of
/// the drives is rated for, and where this is from.
std::string rated_cycles_text(const scenario::Scenario& s);

/// What was written beyond the SLC cache of the drives, which are simulated as if all of it went there; empty without
/// such a cache, or if it holds `bytes_per_drive`.
std::string beyond_slc_cache(const scenario::Scenario& s, double bytes_per_drive);

/// The bytes that wear the flash in what a run has programmed and erased: blocks with unused pages are erased whole;
/// pages that are programmed will be erased later. Parity is not counted, here nor in rated_bytes().
inline double worn_bytes(const scenario::Scenario& s, double programmed, std::uint64_t erased_blocks) {
  const FlashGeometry& flash = s.platform.device.flash.geometry;
  return std::max(programmed, double(erased_blocks) * flash.pages_per_block * double(flash.page_size.value));
}

}  // namespace csdsim::experiment
