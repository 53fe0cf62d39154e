// What the flash of a scenario's drives can take.
#pragma once

#include <cstdint>

#include "nfc/core/reliability.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

inline constexpr double kSecondsPerDay = 86'400, kSecondsPerYear = 365.25 * kSecondsPerDay;

/// Bytes that all drives together can program until each block has been programmed and erased
/// flash.reliability.rated_cycles times.
inline double rated_bytes(const scenario::Scenario& s) {
  const csd_model::DeviceConfig& device = s.platform.device;
  const FlashGeometry& flash = device.flash.geometry;
  const std::uint32_t cycles = device.flash.reliability.value_or(nfc::ReliabilityConfig{}).rated_cycles;
  return cycles * double(flash.pages()) * double(flash.page_size.value) * double(device.count);
}

}  // namespace csdsim::experiment
