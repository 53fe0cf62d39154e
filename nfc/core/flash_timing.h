// Timing parameters of the flash behind one drive, and the array time of an operation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/page_op.h"
#include "base/units.h"

namespace csdsim::nfc {

/// Whom a free channel bus serves among those that have asked by the time of the grant. Within a rank the more urgent
/// class wins, then the earlier ask, then the operation that was submitted first.
enum class BusArbitration : std::uint8_t {
  fifo,           ///< commands and data-outs in one order
  command_first,  ///< commands (those of program and erase included) before data-outs: keeps the arrays busy
  data_first,     ///< data-outs before commands: frees page registers
};

/// What has an array of its own.
enum class PlaneMode : std::uint8_t {
  independent,  ///< each plane
  /// Each plane for reads; each die for programs and erases, which take it alone and join as with multi_plane.
  independent_reads,
  multi_plane,  ///< each die: its planes work together, on pages of one number, or not at all (ONFI 4.2, multi-plane)
};

/// Which operation of a class a plane takes first.
enum class PlaneOrder : std::uint8_t {
  arrival,      ///< the one that was submitted first
  reads_first,  ///< reads before programs and erases (MQSim's out-of-order scheduler)
};

/// What a read may interrupt.
enum class Suspend : std::uint8_t { none, program, erase, program_erase };

/// Latencies of array and bus. GeneralTimeline states the rules.
///
/// The defaults here are for code that builds a FlashTiming itself. In a scenario, flash_timing() sets every field from
/// FlashConfig. There, a key of the scenario counts first, then the drive's preset (scenario/presets/device.yaml), then
/// the default of FlashConfig. By default every feature beyond a read, a program and an erase is off.
struct FlashTiming {
  SimTime read_latency = SimTime::microseconds(50);      ///< tR, array to page register
  SimTime program_latency = SimTime::microseconds(600);  ///< tPROG, > 0
  SimTime erase_latency = SimTime::milliseconds(3);      ///< tBERS, > 0
  SimTime command_time = SimTime::nanoseconds(290);      ///< command and address cycles on the bus
  SimTime data_out_setup = SimTime::nanoseconds(30);     ///< bus time in front of the bytes of a data-out
  SimTime ecc_latency{};                                 ///< decoding after the last byte; the bus and plane are free
  Bandwidth channel_bandwidth{1'400'000'000};            ///< of one channel, > 0
  BusArbitration arbitration = BusArbitration::command_first;
  SimTime read_jitter{};   ///< extra tR of each read, uniform in [0, read_jitter]
  std::uint64_t seed = 0;  ///< of the jitter

  std::optional<SimTime> retry_latency;       ///< tR of the attempts after the first; unset: that of the page
  std::vector<SimTime> page_read_latency;     ///< tR by page type, page in block modulo its size; empty: read_latency
  std::vector<SimTime> page_program_latency;  ///< likewise tPROG, > 0
  PlaneMode plane_mode = PlaneMode::independent;
  bool cache_read = false;     ///< a page leaves the cache register while the next is sensed
  bool cache_program = false;  ///< a page enters the cache register while the last is programmed
  SimTime cache_busy_time{};   ///< between page register and cache register
  Suspend suspend = Suspend::none;
  SimTime suspend_latency{};            ///< from the end of the command until reads are accepted
  SimTime resume_latency{};             ///< from the end of the command until the array works on
  std::uint32_t max_suspends = 1;       ///< of one operation
  std::vector<OpClass> class_priority;  ///< most urgent first; those not named come last; empty: all equal
  PlaneOrder plane_order = PlaneOrder::arrival;
  SimTime status_time{};               ///< bus time of the status poll that ends a program or erase; 0: none
  std::uint32_t dies_per_package = 1;  ///< dies that share a chip enable
  SimTime package_select_time{};       ///< bus time when it turns to another package
  std::uint32_t page_buffers = 0;      ///< of a channel, for pages read; 0: unlimited
  Bandwidth ecc_bandwidth{};           ///< of the decoder of a channel; 0: unlimited
  Bandwidth filter_bandwidth{};        ///< of the filter of a channel, which pages of attention pass; 0: unlimited
  std::uint32_t codeword_bytes = 0;    ///< data bytes of a codeword; 0: pages have no parity
  std::uint32_t parity_bytes = 0;      ///< of a codeword; they cross the channel with it
  bool reuse_register = false;         ///< a read of the page that its plane sensed last is not sensed again
  std::uint32_t word_line_pages = 1;   ///< pages that one program may bring, in one program_latency

  bool operator==(const FlashTiming&) const = default;
};

/// Bytes on the bus for `data` bytes of a page: each codeword that they begin brings its parity.
constexpr std::uint32_t bus_bytes(const FlashTiming& timing, std::uint32_t data) {
  if (timing.parity_bytes == 0) return data;
  return data + (data + timing.codeword_bytes - 1) / timing.codeword_bytes * timing.parity_bytes;
}

/// Throws UserError naming the parameter when a latency is negative, a program or erase takes no time, the channel has
/// no bandwidth, a class has two priorities, a package no die, or parity belongs to no codeword.
void validate(const FlashTiming& timing);

/// Throws UserError naming the parameter when a count or the page size is 0, a page does not fit 32 bits, or the plane
/// or page count overflows (planes: 32 bits, pages: 2^63).
void validate(const FlashGeometry& geometry);

/// Extra tR of the read that was submitted as number `sequence` (from 0) to its drive. A pure function, so that every
/// model of the same drive draws the same times.
constexpr SimTime read_jitter(const FlashTiming& timing, std::uint64_t sequence) {
  if (timing.read_jitter.ps == 0) return {};
  std::uint64_t z = timing.seed + (sequence + 1) * 0x9E3779B97F4A7C15ULL;  // splitmix64 (Steele et al., OOPSLA 2014)
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  z ^= z >> 31;
  const auto span = static_cast<std::uint64_t>(timing.read_jitter.ps) + 1;
  const auto extra = static_cast<std::uint64_t>((static_cast<unsigned __int128>(z) * span) >> 64);
  return SimTime{static_cast<std::int64_t>(extra)};
}

/// Array time of an attempt (from 0) to read the page at `page_in_block`, submitted as number `sequence`.
constexpr SimTime read_time(const FlashTiming& timing, std::uint32_t page_in_block, std::uint32_t attempt,
                            std::uint64_t sequence) {
  const auto& by_type = timing.page_read_latency;
  SimTime latency = by_type.empty() ? timing.read_latency : by_type[page_in_block % by_type.size()];
  if (attempt > 0) latency = timing.retry_latency.value_or(latency);
  return latency + read_jitter(timing, sequence);
}

/// Array time of a program of the page at `page_in_block`.
constexpr SimTime program_time(const FlashTiming& timing, std::uint32_t page_in_block) {
  const auto& by_type = timing.page_program_latency;
  return by_type.empty() ? timing.program_latency : by_type[page_in_block % by_type.size()];
}

/// Urgency of each class, [OpClass]: 0 is the most urgent.
std::array<std::uint8_t, kOpClasses> class_ranks(const FlashTiming& timing);

/// Ranks in the queue of a plane.
inline std::size_t queue_ranks(const FlashTiming& timing) {
  return (timing.class_priority.size() + 1) * (timing.plane_order == PlaneOrder::reads_first ? 2 : 1);
}

/// Rank in the queue of a plane, 0 first, of an operation whose class has `class_rank`.
constexpr std::uint8_t queue_rank(const FlashTiming& timing, std::uint8_t class_rank, PageOpKind kind) {
  if (timing.plane_order == PlaneOrder::arrival) return class_rank;
  return static_cast<std::uint8_t>(2 * class_rank + (kind == PageOpKind::read ? 0 : 1));
}

}  // namespace csdsim::nfc
