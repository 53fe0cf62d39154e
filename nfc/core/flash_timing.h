// Timing parameters of the flash behind one drive, and the array time of an operation.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "nfc/core/reliability.h"

namespace csdsim::nfc {

/// Whom a free channel bus serves among those that have asked by the time of the grant. Within a rank the more urgent
/// class wins, then the earlier ask, then the operation that was submitted first.
enum class BusArbitration : std::uint8_t {
  fifo,           ///< commands and data-outs in one order
  command_first,  ///< commands (those of program and erase included) before data-outs: keeps the arrays busy
  data_first,     ///< data-outs before commands: frees page registers
};

/// Unit of the flash whose array works on its own.
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

/// Operations that a read may interrupt.
enum class Suspend : std::uint8_t { program, erase, program_erase };

/// Latencies by page type, which is the page in its block modulo the size of the list. An empty list: read_latency or
/// program_latency for all.
struct PageTypesConfig {
  CellType cell = CellType::tlc;
  std::vector<SimTime> read_latency;
  std::vector<SimTime> program_latency;  ///< > 0

  bool operator==(const PageTypesConfig&) const = default;
};

/// Double buffering in the registers of a plane.
struct CacheConfig {
  bool read = true;                              ///< a page leaves the cache register while the next is sensed
  bool program = true;                           ///< a page enters the cache register while the last is programmed
  SimTime busy_time = SimTime::microseconds(3);  ///< between page register and cache register

  bool operator==(const CacheConfig&) const = default;
};

/// What a read may interrupt.
struct SuspendConfig {
  Suspend kinds = Suspend::program_erase;
  SimTime latency = SimTime::microseconds(100);  ///< from the end of the command until reads are accepted
  SimTime resume_latency{};                      ///< from the end of the command until the array works on
  std::uint32_t max = 1;                         ///< most suspensions of one operation

  bool covers(PageOpKind kind) const {
    return kind == PageOpKind::program ? kinds != Suspend::erase
                                       : kind == PageOpKind::erase && kinds != Suspend::program;
  }
  bool operator==(const SuspendConfig&) const = default;
};

/// How a page is divided for error correction. A read moves the codewords that it wants, with their parity.
struct CodewordsConfig {
  Bytes size = Bytes::kib(4);   ///< data bytes of a codeword
  Bytes parity{512};            ///< parity bytes of a codeword
  Bytes spare = Bytes::kib(2);  ///< spare bytes of a page, beyond its data bytes: room for parity

  bool operator==(const CodewordsConfig&) const = default;
  Bytes parity_of(Bytes page) const { return parity * (page.value / size.value); }
};

/// Dies that share a chip enable.
struct PackagesConfig {
  std::uint32_t dies = 2;
  SimTime select_time = SimTime::nanoseconds(50);  ///< bus time when it turns to another package

  bool operator==(const PackagesConfig&) const = default;
};

/// Latencies of array and bus. GeneralTimeline states the rules. By default every feature beyond a read, a program and
/// an erase is off. Section `flash` of a drive (FlashConfig) has these fields as its own; flash_timing() sets the last
/// two.
struct FlashTiming {
  SimTime read_latency = SimTime::microseconds(50);      ///< tR, array to page register
  SimTime program_latency = SimTime::microseconds(600);  ///< tPROG, > 0
  SimTime erase_latency = SimTime::milliseconds(3);      ///< tBERS, > 0
  SimTime command_time = SimTime::nanoseconds(290);      ///< command and address cycles on the bus
  SimTime data_out_setup = SimTime::nanoseconds(30);     ///< bus time in front of the bytes of a data-out
  SimTime ecc_latency{};                                 ///< decoding after the last byte; the bus and plane are free
  Bandwidth channel_bandwidth{1'400'000'000};            ///< bandwidth of one channel, > 0
  BusArbitration arbitration = BusArbitration::command_first;
  SimTime read_jitter{};  ///< extra tR of each read, uniform in [0, read_jitter]
  std::optional<PageTypesConfig> page_types;
  PlaneMode plane_mode = PlaneMode::independent;
  std::optional<CacheConfig> cache;
  std::optional<SuspendConfig> suspend;
  std::vector<OpClass> class_priority;  ///< most urgent first; those not named come last; empty: all equal
  PlaneOrder plane_order = PlaneOrder::arrival;
  SimTime status_time{};                      ///< bus time of the status poll that ends a program or erase; 0: none
  std::optional<CodewordsConfig> codewords;   ///< unset: a read moves the whole page, without parity
  bool reuse_register = false;                ///< a read of the page that its plane sensed last is not sensed again
  std::uint32_t word_line_pages = 1;          ///< pages that one program may bring, in one program_latency
  std::optional<PackagesConfig> packages;     ///< unset: turning to another die takes no time
  std::optional<Bandwidth> ecc_bandwidth;     ///< bandwidth of the decoder of a channel; unset: unlimited
  std::optional<Bandwidth> filter_bandwidth;  ///< bandwidth of the filter of a channel; unset: unlimited
  std::optional<std::uint32_t> page_buffers;  ///< buffers of a channel for pages that were read; unset or 0: unlimited

  std::optional<SimTime> retry_latency;  ///< tR of the attempts after the first; unset: that of the page
  std::uint64_t seed = 0;                ///< seed of the jitter

  bool cache_read() const { return cache && cache->read; }
  bool cache_program() const { return cache && cache->program; }
  SimTime cache_busy_time() const { return cache ? cache->busy_time : SimTime{}; }
  SimTime package_select_time() const { return packages ? packages->select_time : SimTime{}; }
  std::uint32_t dies_per_package() const { return packages ? packages->dies : 1; }
  std::uint32_t buffer_limit() const { return page_buffers.value_or(0); }  ///< 0: unlimited

  bool operator==(const FlashTiming&) const = default;
};

/// Bytes on the bus for `data` bytes of a page: each codeword that they begin brings its parity.
constexpr std::uint32_t bus_bytes(const FlashTiming& timing, std::uint32_t data) {
  if (!timing.codewords) return data;
  const auto size = static_cast<std::uint32_t>(timing.codewords->size.value);
  return data + (data + size - 1) / size * static_cast<std::uint32_t>(timing.codewords->parity.value);
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

/// The latency in `list` of the type of the page at `page_in_block`; `of_all` where there is no list.
constexpr SimTime of_page_type(const FlashTiming& timing, std::vector<SimTime> PageTypesConfig::*list, SimTime of_all,
                               std::uint32_t page_in_block) {
  if (!timing.page_types) return of_all;
  const std::vector<SimTime>& by_type = *timing.page_types.*list;
  return by_type.empty() ? of_all : by_type[page_in_block % by_type.size()];
}

/// Array time of an attempt (from 0) to read the page at `page_in_block`, submitted as number `sequence`.
constexpr SimTime read_time(const FlashTiming& timing, std::uint32_t page_in_block, std::uint32_t attempt,
                            std::uint64_t sequence) {
  SimTime latency = of_page_type(timing, &PageTypesConfig::read_latency, timing.read_latency, page_in_block);
  if (attempt > 0) latency = timing.retry_latency.value_or(latency);
  return latency + read_jitter(timing, sequence);
}

/// Array time of a program of the page at `page_in_block`.
constexpr SimTime program_time(const FlashTiming& timing, std::uint32_t page_in_block) {
  return of_page_type(timing, &PageTypesConfig::program_latency, timing.program_latency, page_in_block);
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
