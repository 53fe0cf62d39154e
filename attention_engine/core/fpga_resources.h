// Resources of an FPGA that the units of a drive with an attention engine take (docs/fpga_resources.md).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
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
  /// True if no amount exceeds that of `available`.
  bool within(const FpgaResources& available) const;
};

/// Their names in results.
struct FpgaResourceName {
  std::string_view name;
  double FpgaResources::*amount;
};
inline constexpr std::array<FpgaResourceName, 4> kFpgaResourceNames{{{"luts", &FpgaResources::luts},
                                                                     {"flip_flops", &FpgaResources::flip_flops},
                                                                     {"block_rams", &FpgaResources::block_rams},
                                                                     {"dsps", &FpgaResources::dsps}}};

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

/// The parameters that the resources of a drive follow from. The first row of the comments is what it counts in.
struct FpgaDesign {
  std::uint32_t kernels = 2;            ///< EngineConfig, likewise the next ones
  std::uint32_t macs_per_cycle = 128;   ///< MACs per cycle of a kernel
  std::uint32_t softmax_per_cycle = 8;  ///< elements per cycle in the softmax of a kernel
  std::uint32_t argtopk_units = 1;
  std::uint32_t argtopk_per_cycle = 1;  ///< elements per cycle of an argtopk unit
  std::uint32_t jobs_in_flight = 16;
  Bytes buffer{};  ///< in block RAM: 0 if the engine's buffer is in DRAM
  ScoringConfig scoring{};
  Bytes page_size{};
  std::uint32_t channels = 8;
  std::optional<std::uint32_t> page_buffers{};  ///< page buffers of a channel; unset: unlimited
  Bandwidth link{};                             ///< to the host
  bool behind_switch = false;  ///< flash controllers and NVMe are in another chip, a shell takes their place

  /// What an engine takes is finite.
  bool bounded() const { return behind_switch || page_buffers.has_value(); }
};

/// Blocks of 36 Kbit, in halves, for a memory of `bytes` that delivers `bits` per cycle: a block holds 4,608 bytes
/// with its parity bits and has a port of 72 bits (Xilinx UG473, UG573).
double block_rams(Bytes bytes, double bits);

/// The resources that the units take. Page buffers count only where their number is limited.
///
///   kernel         3 DSPs per product (FP16 multiplier 1, adder 2: Xilinx PG060, full DSP usage); block RAM for the
///                  rows of two pages at 16 bits per product, for q, sums and output of each job at 4 bits per product,
///                  and for logits and weights at 32 bits per exponential
///   argtopk        block RAM for engine.buffer, which all units share, with a port of 64 bits (score and position) for
///                  each element that they compare per cycle
///   flash          block RAM for the page buffers of each channel
///   NVMe           a stream each way for each GB/s of the link; block RAM for 4 streams, the buffers of the PCIe block
///                  (32 KiB), 256 commands (112 B) and 4 pages
///   interconnect   a port for each kernel, each argtopk unit and NVMe; block RAM for a FIFO of 512 x 64 bits each way
///
/// Look-up tables and flip-flops follow from five constants that are fitted on InstInfer Table I, each on two entries:
/// FpgaFit. `scoring`: scoring_use(). `shell`: of the SmartSSD, a fifth of the LUTs, flip-flops and block RAMs of a
/// KU15P (assumed).
FpgaUse fpga_use(const FpgaDesign& design);

/// Constants fitted on Table I.
struct FpgaFit {
  /// Resources of a product, fully pipelined: the two flip-flops that a slice has for each LUT (UG474) are used. Fitted
  /// on LUTs and flip-flops of the attention kernels.
  static constexpr double kProductLuts = 396, kFlipFlopsPerLut = 2;
  /// Resources of a unit that filters data: a flash controller with its filter, or the argtopk unit per element and
  /// cycle.
  static constexpr double kFilterLuts = 6'480, kFilterFlipFlops = 3'660;
  /// Resources of a stream of 32 bits, of NVMe or the interconnect.
  static constexpr double kStreamLuts = 1'014, kStreamFlipFlops = 1'549;
};

/// A scoring unit of `lanes` products per cycle (ScoringConfig), fully pipelined: the query in registers and block RAM,
/// a multiplier per product, a tree of lanes - 1 adders, and for integers a cast of the fp16 keys (the largest |k| of a
/// token, then a multiplication by its reciprocal and rounding). Sources per product, at up to 300 MHz:
///   fp16  that of an attention kernel (in the fit the softmax is included: an upper bound)
///   int8  half a DSP48E2 (Xilinx WP486: two INT8 products that share an operand, here a component of q and two keys),
///         an adder of 24 bits; cast: a DSP and 40 LUTs (assumed)
///   int4  24 LUTs for a product of 8 x 4 bits (assumed), an adder of 20 bits; the cast of int8
/// Registers: two per LUT. Block RAM: two pages of keys at 16 bits per product, and a query.
FpgaResources scoring_use(ScorePrecision precision, std::uint32_t lanes, Bytes page_size = Bytes{4096});
/// All precisions that a unit has.
FpgaResources scoring_use(const ScoringConfig& scoring, Bytes page_size = Bytes{4096});

/// The most lanes that fit `room`. `use` grows with its lanes.
template <class Use>
std::uint32_t most_lanes(const FpgaResources& room, Use use) {
  std::uint32_t lanes = 0;
  while (use(lanes + 1).within(room)) ++lanes;
  return lanes;
}

/// The sum over the units.
FpgaResources total(const FpgaUse& use);

/// An FPGA by name, and what it has.
struct Fpga {
  std::string_view name;
  FpgaResources available;
};
/// InstInfer Table I, column "available"; Xilinx DS190 for the Zynq-7100, DS891 for Zynq UltraScale+, DS890 for the
/// others.
inline constexpr Fpga kZynq7045{"Zynq-7045", {.luts = 218'600, .flip_flops = 437'200, .block_rams = 545, .dsps = 900}};
inline constexpr Fpga kZynq7100{"Zynq-7100",
                                {.luts = 277'400, .flip_flops = 554'800, .block_rams = 755, .dsps = 2'020}};
inline constexpr Fpga kZu9eg{"ZU9EG", {.luts = 274'080, .flip_flops = 548'160, .block_rams = 912, .dsps = 2'520}};
inline constexpr Fpga kZu17eg{"ZU17EG", {.luts = 423'403, .flip_flops = 846'806, .block_rams = 796, .dsps = 1'590}};
inline constexpr Fpga kKu15p{"KU15P", {.luts = 522'720, .flip_flops = 1'045'440, .block_rams = 984, .dsps = 1'968}};
inline constexpr Fpga kVu9p{"VU9P", {.luts = 1'182'240, .flip_flops = 2'364'480, .block_rams = 2'160, .dsps = 6'840}};

/// The FPGA that `part` names; `automatic`: a Zynq-7045, behind a switch a KU15P.
const Fpga& fpga_of(FpgaPart part, bool behind_switch);

/// The resources that the design lacks, as text: "1152 DSPs of 900"; empty if it fits.
std::string fpga_lacks(const FpgaDesign& design, const Fpga& fpga);

}  // namespace csdsim::engine
