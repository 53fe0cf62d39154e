// Parameters and counters of the attention engine.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/address.h"
#include "base/param_codec.h"
#include "base/units.h"
#include "contracts/token_score.h"

namespace csdsim {
class ParamVisitor;
class Statistics;
}  // namespace csdsim

namespace csdsim::engine {

/// The moment at which a kernel starts on the pages of a phase.
enum class Intake : std::uint8_t {
  automatic,  ///< where page_buffers is limited, arrival or, if flash and engine take turns, page; otherwise phase
  phase,      ///< when the last page of the phase has arrived
  page,       ///< with each page that arrives, in the order of tokens; its buffer is taken when its read is issued
  arrival     ///< with each page that arrives, in any order; its buffer is taken when its transfer starts
};

/// The FPGA that the engine is to fit (fpga_resources.h).
enum class FpgaPart : std::uint8_t {
  automatic,  ///< none is named: Zynq-7045, behind a switch KU15P, and nothing is refused
  zynq7045,
  zynq7100,
  zu9eg,
  zu17eg,
  ku15p,
  vu9p
};

/// The answer to an engine that does not fit the named FPGA.
enum class FpgaCheck : std::uint8_t { error, warn, off };

/// Section `engine.scoring`: a unit that only scores tokens (HillInfer 4.4), an adder tree over `lanes` products per
/// cycle into which keys stream. Without lanes for fp16, scores in fp16 run on the attention kernels; INT8 and INT4
/// need their lanes.
struct ScoringConfig {
  std::optional<std::uint32_t> fp16_lanes;
  std::optional<std::uint32_t> int8_lanes;
  std::optional<std::uint32_t> int4_lanes;

  /// Products per cycle of the unit; unset where it has not got the precision.
  const std::optional<std::uint32_t>& lanes(ScorePrecision precision) const {
    return precision == ScorePrecision::fp16 ? fp16_lanes : precision == ScorePrecision::int8 ? int8_lanes : int4_lanes;
  }
};

/// The memory of the engine's buffer.
enum class EngineMemory : std::uint8_t { sram, dram };

/// Factors by which the units are faster than stated. Nothing but a run that asks what a faster unit would gain changes
/// these.
struct UnitSpeeds {
  double products = 1;  ///< products of the attention kernels
  double softmax = 1;   ///< likewise
  double scoring = 1;
  double argtopk = 1;

  static std::uint64_t faster(std::uint64_t cycles, double speed);
};

/// Clock and kernel count as InstInfer states them (V-A, IV-B); the rest is not stated there and assumed. Section
/// `engine` of a drive sets everything but the last four fields: `overlap_flash` is platform.overlap.engine_flash, and
/// the drive fills the other three from its flash.
struct EngineConfig {
  Frequency clock{285'000'000};                     ///< InstInfer V-A
  std::uint32_t kernels = 2;                        ///< attention kernels (GeMV and softmax), InstInfer IV-B
  std::uint32_t macs_per_cycle = 128;               ///< multiply-accumulates per cycle and kernel; assumed
  std::uint32_t softmax_per_cycle = 8;              ///< exponentials per cycle and kernel; assumed
  std::uint32_t dequantised_per_cycle = 128;        ///< elements of few bits per cycle and kernel; assumed
  std::uint32_t argtopk_units = 1;                  ///< InstInfer IV-B has one
  std::uint32_t argtopk_per_cycle = 1;              ///< elements per cycle that an argtopk unit takes in; assumed
  std::uint32_t jobs_in_flight = 16;                ///< head jobs between start and end; assumed
  Bytes buffer = Bytes::mib(1);                     ///< for scores and selected rows, see job_footprint(); assumed
  EngineMemory buffer_memory = EngineMemory::sram;  ///< for whoever owns controller DRAM; the engine does not ask
  Intake intake = Intake::automatic;
  FpgaPart fpga = FpgaPart::automatic;
  FpgaCheck fpga_check = FpgaCheck::error;
  ScoringConfig scoring;
  UnitSpeeds speeds;

  /// False: flash and engine take turns (EngineTurns).
  bool overlap_flash = true;
  /// Page buffers per channel in the flash controllers; 0: unlimited. A page holds one until a kernel has processed it:
  /// from when its read is issued (Intake::page), or from the start of its transfer, which the flash sees to
  /// (Intake::arrival). Not with Intake::phase, because a phase may have more pages than there are buffers, and
  /// Intake::arrival not with overlap_flash off, because flash's turn would never end while its buffers are full. The
  /// flash must support the phase RELEASE_BUFFERS (nfc/sysc/flash_payload.h).
  std::uint32_t page_buffers = 0;
  FlashGeometry geometry;  ///< which channel a page is on; used with page_buffers
  bool filtered = true;    ///< the flash controllers drop the rows of pages that are not wanted

  /// Kernels work on the pages of a phase as they come.
  bool takes_pages() const {
    return intake == Intake::page || by_arrival() || (intake == Intake::automatic && page_buffers > 0);
  }
  /// They do so in the order of arrival.
  bool by_arrival() const {
    return intake == Intake::arrival || (intake == Intake::automatic && page_buffers > 0 && overlap_flash);
  }

  /// True if tokens can be scored in this precision.
  bool scores(ScorePrecision precision) const {
    return precision == ScorePrecision::fp16 || scoring.lanes(precision).has_value();
  }
  /// Throws UserError, naming the parameter, where scores() is false.
  void require(ScorePrecision precision) const;

  /// The time in which an argtopk unit takes in so many elements.
  SimTime argtopk_time(std::uint64_t elements) const;

  /// Throws UserError naming the parameter that is 0, or the intake that page_buffers exclude.
  void validate() const;
};

void describe(ParamVisitor& v, ScoringConfig& c);
void describe(ParamVisitor& v, EngineConfig& c);

/// The phases of a head job's time. Each moment of a job belongs to exactly one phase; queueing for a unit counts as
/// the unit's phase.
enum class JobPhase : std::uint8_t {
  wait,         ///< from submission to start: older jobs, job slots, buffer
  phase_a,      ///< reading embedding pages (and token pages that stand in for them)
  logit0,       ///< approximate logits on a kernel
  argtopk,      ///< both uses of an argtopk unit
  phase_b,      ///< reading token pages
  attend,       ///< logits, softmax and output on a kernel
  feed_forward  ///< a feed-forward job, which reads and computes at the same time
};
inline constexpr std::size_t kJobPhases = 7;
inline constexpr std::array<std::string_view, kJobPhases> kJobPhaseNames{"wait",    "phase_a", "logit0",      "argtopk",
                                                                         "phase_b", "attend",  "feed_forward"};

/// A sum of durations: over millions of jobs it exceeds the range of SimTime.
struct DurationSum {
  __int128 ps = 0;
  DurationSum& operator+=(SimTime t) {
    ps += t.ps;
    return *this;
  }
  double seconds() const { return static_cast<double>(ps) * 1e-12; }
};

/// Totals since construction.
struct EngineStats {
  std::uint64_t tasks = 0;              ///< completed
  std::uint64_t dense_jobs = 0;         ///< completed, SparF jobs with S <= k included
  std::uint64_t sparf_jobs = 0;         ///< completed
  std::uint64_t score_jobs = 0;         ///< completed
  std::uint64_t feed_forward_jobs = 0;  ///< completed
  std::uint64_t neurons = 0;            ///< neurons that these jobs compute
  std::uint64_t neuron_macs = 0;        ///< the part of `macs` that they took
  std::uint64_t macs = 0;               ///< multiply-accumulates charged to the kernels and the scoring unit
  std::uint64_t argtopk_elements = 0;   ///< elements charged to the argtopk units
  std::uint64_t embedding_pages = 0;    ///< page reads of phase A from embedding pages
  std::uint64_t token_pages_a = 0;      ///< page reads of phase A from token pages (keys not yet transposed)
  std::uint64_t token_pages_b = 0;      ///< page reads of phase B and of dense and score jobs
  std::uint64_t record_pages = 0;       ///< page reads of feed-forward jobs
  Bytes channel_bytes;                  ///< over the flash channels, for all of these pages
  Bytes record_bytes;                   ///< the part of channel_bytes for feed-forward jobs
  /// That kernels take in: p (r S + 2 k d), dense p 2 S d, score p S d; of records p 2 D (gated p 3 D) per neuron.
  /// Bytes that reach the engine. Rows of few bits count with their integers and scales, or those of the chosen
  /// components (p S for each group of them). Without filters, unwanted bytes of the pages count too.
  Bytes engine_bytes;
  SimTime kernel_busy;        ///< summed over the kernels
  SimTime softmax_busy;       ///< the part of kernel_busy for exponentials
  SimTime neuron_busy;        ///< the part of kernel_busy for feed-forward jobs
  SimTime scoring_busy;       ///< busy time of the scoring unit
  SimTime argtopk_busy;       ///< summed over the argtopk units
  DurationSum kernel_waited;  ///< time that work waited for a free kernel, summed; the next ones likewise
  DurationSum scoring_waited;
  DurationSum argtopk_waited;
  DurationSum buffer_waited;  ///< time that pages waited for a page buffer, summed
  Bytes peak_buffer;
  std::uint64_t peak_page_buffers = 0;             ///< most that were in use on one channel, if they are limited
  std::array<DurationSum, kJobPhases> phase_time;  ///< summed over jobs, by JobPhase

  std::uint64_t jobs() const { return dense_jobs + sparf_jobs + score_jobs + feed_forward_jobs; }
  std::uint64_t pages() const { return embedding_pages + token_pages_a + token_pages_b + record_pages; }
};

/// Registers the counters with unit and meaning; `stats` must outlive the dump.
void register_statistics(Statistics& statistics, const EngineStats& stats);

}  // namespace csdsim::engine

namespace csdsim {

template <>
struct EnumValues<engine::Intake> {
  static constexpr EnumValue<engine::Intake> values[] = {
      {engine::Intake::automatic, "auto",
       "Where flash.page_buffers are limited, arrival; page if flash and engine take turns; otherwise phase."},
      {engine::Intake::phase, "phase", "All pages of a phase: the kernel starts when the last one is there."},
      {engine::Intake::page, "page",
       "Page by page in the order of tokens; a page has its buffer from the issue of its read on."},
      {engine::Intake::arrival, "arrival",
       "Page by page as they arrive, values after their keys; a page has its buffer from the start of its transfer "
       "on."}};
};
template <>
struct EnumValues<engine::FpgaPart> {
  static constexpr EnumValue<engine::FpgaPart> values[] = {
      {engine::FpgaPart::automatic, "auto",
       "None is named: results state shares of a Zynq-7045, or KU15P behind a "
       "switch, and nothing is refused."},
      {engine::FpgaPart::zynq7045, "zynq7045", "Xilinx Zynq-7045 (InstInfer Table I)."},
      {engine::FpgaPart::zynq7100, "zynq7100", "Xilinx Zynq-7100 (DS190)."},
      {engine::FpgaPart::zu9eg, "zu9eg", "Xilinx Zynq UltraScale+ ZU9EG (DS891)."},
      {engine::FpgaPart::zu17eg, "zu17eg", "Xilinx Zynq UltraScale+ ZU17EG, of InstInfer's prototype (DS891)."},
      {engine::FpgaPart::ku15p, "ku15p", "Xilinx Kintex UltraScale+ KU15P, of the SmartSSD (DS890)."},
      {engine::FpgaPart::vu9p, "vu9p", "Xilinx Virtex UltraScale+ VU9P (DS890)."}};
};
template <>
struct EnumValues<engine::FpgaCheck> {
  static constexpr EnumValue<engine::FpgaCheck> values[] = {
      {engine::FpgaCheck::error, "error", "The scenario is refused."},
      {engine::FpgaCheck::warn, "warn", "A note says what exceeds the FPGA."},
      {engine::FpgaCheck::off, "off", "The result states it."}};
};
template <>
struct EnumValues<engine::EngineMemory> {
  static constexpr EnumValue<engine::EngineMemory> values[] = {
      {engine::EngineMemory::sram, "sram", "Memory of its own."},
      {engine::EngineMemory::dram, "dram", "Controller DRAM, whose bandwidth it shares."}};
};

}  // namespace csdsim
