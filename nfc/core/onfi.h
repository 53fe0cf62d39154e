// The electrical interfaces between controller and flash that ONFI and JEDEC define: how fast a channel moves bytes,
// and what its commands and data-outs cost besides.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/units.h"

namespace csdsim::nfc {

/// One speed of one interface. Times are the minima of the specification (maxima where the host has to wait).
struct InterfaceMode {
  std::string_view name;       ///< "onfi-nvddr3-800": family and transfers a second in units of 10^6, rounded
  std::string_view source;     ///< specification and mode
  std::uint64_t transfers;     ///< a second and pin
  SimTime select;              ///< tCS: chip enable before the first cycle
  SimTime cycle;               ///< tWC (NV-DDR: tCAD) of a command or address byte
  SimTime hold;                ///< tCH: chip enable after the last cycle
  SimTime data_out_setup;      ///< from asking for data to the first byte, see interface_modes()
  std::uint32_t bus_bits = 8;  ///< data pins

  /// Transfers a second x bus width / 8.
  constexpr Bandwidth channel_bandwidth() const { return {transfers * bus_bits / 8}; }
  /// A command with its address: two command and five address bytes (ONFI, page read and page program), chip enable
  /// set up and held.
  constexpr SimTime command_time() const { return select + cycle * kCommandCycles + hold; }

  static constexpr std::int64_t kCommandCycles = 7;
};

/// All modes, slowest first within a family. Setup of a data-out: SDR tRR + tREA; NV-DDR tWRCK + tDQSCK; NV-DDR2 and
/// later, and Toggle: tRPRE + tDQSRE, and from 800 MT/s on two warm-up cycles of the strobe.
std::span<const InterfaceMode> interface_modes();

/// The mode of that name, or nullptr.
const InterfaceMode* find_interface_mode(std::string_view name);

}  // namespace csdsim::nfc
