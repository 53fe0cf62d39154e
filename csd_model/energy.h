// The energy of drives. It is linear in time and in what was counted, so that what a sampled run extrapolates gives the
// energy of the whole run. The GPU's and the host's is not modelled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "csd_model/drive.h"
#include "csd_model/energy_config.h"

namespace csdsim::csd_model {

/// Time and work of one or more drives; sums and multiples of them make sense.
struct EnergyInputs {
  double drive_seconds = 0;  ///< elapsed time, summed over the drives
  double read_s = 0;         ///< array time by kind of operation, summed over planes
  double program_s = 0;
  double erase_s = 0;
  double channel_bytes = 0;
  double dram_bytes = 0;  ///< read or written in controller DRAM
  double macs = 0;
  double link_bytes = 0;  ///< payload, both directions
};
EnergyInputs operator-(EnergyInputs a, const EnergyInputs& b);

/// What a drive did since the start of the simulation; drive_seconds is left at 0. Where the bandwidth of DRAM is
/// not modelled, its traffic is taken to be the payload of the link, in and out, and the pages that garbage collection
/// copies.
EnergyInputs energy_inputs(const Drive& drive);

/// What draws power all the time.
struct EnergyParts {
  std::uint32_t dies = 0;  ///< of a drive
  double dram_gib = 0;
  bool engine = true;  ///< drives without an attention engine have none to feed
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

EnergyBreakdown energy(const EnergyConfig& config, const EnergyParts& parts, const EnergyInputs& in);

/// Sum over the components, in joules.
double total(const EnergyBreakdown& breakdown);

}  // namespace csdsim::csd_model
