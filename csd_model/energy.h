// The energy of drives. It is linear in time and in the counts, so that the extrapolated counts of a sampled run give
// the energy of the whole run. The counts come from Drive::totals() in drive.cpp. The energy of GPU and host
// is not modelled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csd_model/drive_totals.h"
#include "csd_model/energy_config.h"

namespace csdsim::csd_model {

/// The parts of a drive that draw power all the time.
struct EnergyParts {
  std::uint32_t dies = 0;  ///< dies per drive
  double dram_gib = 0;
  bool engine = true;  ///< false: the drive has no attention engine
};

enum class EnergyComponent : std::uint8_t {
  array_read,
  array_program,
  array_erase,
  array_standby,
  channel,
  ecc,
  dram,
  engine,
  link,
  controller,
};
inline constexpr std::size_t kEnergyComponents = 10;
inline constexpr std::array<std::string_view, kEnergyComponents> kEnergyComponentNames{
    "array_read", "array_program", "array_erase", "array_standby", "channel",
    "ecc",        "dram",          "engine",      "link",          "controller"};

/// Joules, [EnergyComponent].
using EnergyBreakdown = std::array<double, kEnergyComponents>;

/// Energy of the time and the work of one or more drives that are alike.
EnergyBreakdown energy(const EnergyConfig& config, const EnergyParts& parts, const DriveWork& work);

/// Sum over the components, in joules.
double total(const EnergyBreakdown& breakdown);

}  // namespace csdsim::csd_model
