// Resources of an FPGA that the units of a drive with an attention engine take.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace csdsim::engine {

/// Amounts of the four resources that a table of FPGA utilisation states.
struct FpgaResources {
  double luts = 0;        ///< look-up tables
  double flip_flops = 0;  ///< registers
  double block_rams = 0;  ///< blocks of 36 Kbit; a half is one of 18 Kbit
  double dsps = 0;        ///< multipliers

  FpgaResources& operator+=(const FpgaResources& other);
  /// Each amount divided by that of `available`, as shares: 0.85 is 85 %.
  FpgaResources share_of(const FpgaResources& available) const;
  /// Whether no amount exceeds that of `available`.
  bool within(const FpgaResources& available) const;
};

/// The units whose resources InstInfer states.
enum class FpgaUnit : std::uint8_t { attention_kernels, argtopk, flash_controllers, nvme, interconnect };
inline constexpr std::size_t kFpgaUnits = 5;
inline constexpr std::array<std::string_view, kFpgaUnits> kFpgaUnitNames{"attention_kernels", "argtopk",
                                                                         "flash_controllers", "nvme", "interconnect"};

/// Resources by FpgaUnit.
using FpgaUse = std::array<FpgaResources, kFpgaUnits>;

/// What the units take, from InstInfer Table I, which is for 2 attention kernels and 8 channels: the kernels grow in
/// proportion to `kernels`, the flash controllers (NFC with filter) in proportion to `channels`. The others are
/// constant: the argtopk unit, NVMe and the interconnect. Nothing follows the widths of the units (macs_per_cycle,
/// softmax_per_cycle, argtopk_per_cycle), the size of the engine's buffer, the number of interconnect ports or the
/// clock, because the paper states one design.
FpgaUse fpga_use(std::uint32_t kernels, std::uint32_t channels);

/// The sum over the units.
FpgaResources total(const FpgaUse& use);

/// An FPGA by name, and what it has.
struct Fpga {
  std::string_view name;
  FpgaResources available;
};
/// InstInfer Table I, column "available".
inline constexpr Fpga kZynq7045{"Zynq-7045", {.luts = 218'600, .flip_flops = 437'200, .block_rams = 545, .dsps = 900}};

}  // namespace csdsim::engine
