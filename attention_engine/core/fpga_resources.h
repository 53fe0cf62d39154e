// Resources of an FPGA that the units of a drive with an attention engine take.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "attention_engine/core/engine_config.h"

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
enum class FpgaUnit : std::uint8_t {
  attention_kernels,
  argtopk,
  flash_controllers,
  nvme,
  interconnect,
  scoring,
  shell
};
inline constexpr std::size_t kFpgaUnits = 7;
inline constexpr std::array<std::string_view, kFpgaUnits> kFpgaUnitNames{
    "attention_kernels", "argtopk", "flash_controllers", "nvme", "interconnect", "scoring", "shell"};

/// Resources by FpgaUnit.
using FpgaUse = std::array<FpgaResources, kFpgaUnits>;

/// What the units take, from InstInfer Table I, which is for 2 attention kernels and 8 channels: the kernels grow in
/// proportion to `kernels`, the flash controllers (NFC with filter) in proportion to `channels`. The others are
/// constant: the argtopk unit, NVMe and the interconnect. A scoring unit is added (scoring_use). Nothing follows the
/// widths of the units (macs_per_cycle, softmax_per_cycle, argtopk_per_cycle), the size of the engine's buffer, the
/// number of interconnect ports or the clock, because the paper states one design.
FpgaUse fpga_use(std::uint32_t kernels, std::uint32_t channels, const ScoringConfig& scoring = {});

/// A scoring unit of `lanes` products per cycle (ScoringConfig), fully pipelined: the query in registers and block RAM,
/// a multiplier per product, a tree of lanes - 1 adders, and for integers a cast of the fp16 keys (the largest |k| of a
/// token, then a multiplication by its reciprocal and rounding). Sources per product, at up to 300 MHz:
///   fp16  3 DSPs, 387 LUTs, 810 flip-flops: InstInfer Table I, 768 DSPs for 2 kernels of 128 products (the softmax is
///         in it: an upper bound)
///   int8  half a DSP48E2 (Xilinx WP486: two INT8 products that share an operand, here a component of q and two keys),
///         an adder of 24 bits; cast: a DSP and 40 LUTs (assumed)
///   int4  24 LUTs for a product of 8 x 4 bits (assumed), an adder of 20 bits; the cast of int8
/// Registers: two per LUT of integers (assumed). Block RAM: two pages of keys and a query, 4 blocks (assumed).
FpgaResources scoring_use(ScorePrecision precision, std::uint32_t lanes);
/// All precisions that a unit has.
FpgaResources scoring_use(const ScoringConfig& scoring);

/// Exact attention that takes in `lanes` elements of K and as many of V per cycle, exponentials included: InstInfer's
/// kernels, of which 256 products per cycle take the first row of Table I.
FpgaResources exact_attention_use(std::uint32_t lanes);

/// The most lanes that fit `room`. `use` grows with its lanes.
template <class Use>
std::uint32_t most_lanes(const FpgaResources& room, Use use) {
  std::uint32_t lanes = 0;
  while (use(lanes + 1).within(room)) ++lanes;
  return lanes;
}

/// What an engine behind a switch takes: attention kernels, the argtopk unit, the scoring unit, and the SmartSSD's
/// shell (PCIe, DMA, DDR4 controller): a fifth of the LUTs, flip-flops and block RAMs of a KU15P (assumed).
FpgaUse fpga_use_behind_switch(std::uint32_t kernels, const ScoringConfig& scoring);

/// The sum over the units.
FpgaResources total(const FpgaUse& use);

/// An FPGA by name, and what it has.
struct Fpga {
  std::string_view name;
  FpgaResources available;
};
/// InstInfer Table I, column "available".
inline constexpr Fpga kZynq7045{"Zynq-7045", {.luts = 218'600, .flip_flops = 437'200, .block_rams = 545, .dsps = 900}};

/// Xilinx DS890, UltraScale overview: XCKU15P, the FPGA of the SmartSSD (HillInfer 5.2).
inline constexpr Fpga kKu15p{"KU15P", {.luts = 522'720, .flip_flops = 1'045'440, .block_rams = 984, .dsps = 1'968}};

}  // namespace csdsim::engine
