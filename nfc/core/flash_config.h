// The flash of a drive: array, channels and their controllers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/page_op.h"
#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/kv_filter.h"
#include "nfc/core/reliability_config.h"

namespace csdsim::nfc {

/// Latencies by page type: a list for reads, for programs, or for both, with one item per bit of the cell.
struct PageTypesConfig {
  CellType cell = CellType::tlc;
  std::vector<SimTime> read_latency;
  std::vector<SimTime> program_latency;
};

/// Double buffering in the registers of a plane. At least one of the two is on.
struct CacheConfig {
  bool read = true;
  bool program = true;
  SimTime busy_time = SimTime::microseconds(3);
};

struct SuspendConfig {
  Suspend kinds = Suspend::program_erase;
  SimTime latency = SimTime::microseconds(100);
  SimTime resume_latency{};
  std::uint32_t max = 1;
};

/// How a page is divided for error correction. A read moves the codewords that it wants, with their parity.
struct CodewordsConfig {
  Bytes size = Bytes::kib(4);   ///< data bytes of a codeword
  Bytes parity{512};            ///< of a codeword
  Bytes spare = Bytes::kib(2);  ///< of a page, beyond its data bytes: room for parity

  Bytes parity_of(Bytes page) const { return parity * (page.value / size.value); }
};

struct PackagesConfig {
  std::uint32_t dies = 2;
  SimTime select_time = SimTime::nanoseconds(50);
};

/// The flash array and its channels: section `flash` of a drive. With page types, read_latency and program_latency are
/// the means of the lists.
struct FlashConfig {
  FlashGeometry geometry;
  std::string interface;  ///< of interface_modes(), or empty
  SimTime read_latency = SimTime::microseconds(50);
  SimTime program_latency = SimTime::microseconds(600);
  SimTime erase_latency = SimTime::milliseconds(3);
  Bandwidth channel_bandwidth{1'400'000'000};
  SimTime command_time = SimTime::nanoseconds(290);
  SimTime data_out_setup = SimTime::nanoseconds(30);
  BusArbitration bus_arbitration = BusArbitration::command_first;
  SimTime ecc_latency{};
  SimTime read_jitter{};  ///< each read takes up to this much longer, uniformly
  std::optional<PageTypesConfig> page_types;
  PlaneMode plane_mode = PlaneMode::independent;
  std::optional<CacheConfig> cache;
  std::optional<SuspendConfig> suspend;
  std::vector<OpClass> class_priority;  ///< most urgent first
  PlaneOrder plane_order = PlaneOrder::arrival;
  SimTime status_time{};
  std::optional<CodewordsConfig> codewords;  ///< unset: a read moves the whole page, without parity
  bool reuse_register = false;
  std::uint32_t word_line_pages = 1;
  std::optional<PackagesConfig> packages;
  std::optional<Bandwidth> ecc_bandwidth;     ///< of the decoder of a channel
  std::optional<std::uint32_t> page_buffers;  ///< of a channel
  std::optional<ReliabilityConfig> reliability;
  FilterLocation filter_location = FilterLocation::nfc;
  std::optional<Bandwidth> filter_bandwidth;  ///< of the filter of a channel
};

void describe(ParamVisitor& v, PageTypesConfig& c);
void describe(ParamVisitor& v, CacheConfig& c);
void describe(ParamVisitor& v, SuspendConfig& c);
void describe(ParamVisitor& v, CodewordsConfig& c);
void describe(ParamVisitor& v, PackagesConfig& c);
void describe(ParamVisitor& v, FlashConfig& c);

/// Array and bus times as the timelines take them; `seed` is that of the jitter.
FlashTiming flash_timing(const FlashConfig& config, std::uint64_t seed);

}  // namespace csdsim::nfc

namespace csdsim {

template <>
struct EnumValues<nfc::BusArbitration> {
  static constexpr EnumValue<nfc::BusArbitration> values[] = {
      {nfc::BusArbitration::fifo, "fifo", "Requests take the bus in the order of asking."},
      {nfc::BusArbitration::command_first, "command_first", "Commands go before data: planes start sooner."},
      {nfc::BusArbitration::data_first, "data_first", "Data goes before commands: planes are emptied sooner."}};
};
template <>
struct EnumValues<OpClass> {
  static constexpr EnumValue<OpClass> values[] = {
      {OpClass::host, "host", "Block commands of the host."},
      {OpClass::attend, "attend", "Pages that the attention engine reads."},
      {OpClass::flush, "flush", "Groups of the KV cache and of the write buffer on their way to flash."},
      {OpClass::gc, "gc", "Garbage collection."},
      {OpClass::map, "map", "Pages of the map itself."}};
};
template <>
struct EnumValues<nfc::PlaneMode> {
  static constexpr EnumValue<nfc::PlaneMode> values[] = {
      {nfc::PlaneMode::independent, "independent", "Each plane works on its own."},
      {nfc::PlaneMode::independent_reads, "independent_reads",
       "Each plane reads on its own; a program or an erase takes the whole die, and those of its planes join as with "
       "multi_plane."},
      {nfc::PlaneMode::multi_plane, "multi_plane",
       "The planes of a die work together, on operations that wait at the same time for pages of one number."}};
};
template <>
struct EnumValues<nfc::PlaneOrder> {
  static constexpr EnumValue<nfc::PlaneOrder> values[] = {
      {nfc::PlaneOrder::arrival, "arrival", "What came first."},
      {nfc::PlaneOrder::reads_first, "reads_first", "Reads, then programs and erases."}};
};
template <>
struct EnumValues<nfc::Suspend> {
  static constexpr EnumValue<nfc::Suspend> values[] = {
      {nfc::Suspend::program, "program", "Reads suspend programs."},
      {nfc::Suspend::erase, "erase", "Reads suspend erases."},
      {nfc::Suspend::program_erase, "program_erase", "Reads suspend programs and erases."}};
};
template <>
struct EnumValues<nfc::FilterLocation> {
  static constexpr EnumValue<nfc::FilterLocation> values[] = {
      {nfc::FilterLocation::nfc, "nfc", "On the controller's side of the channel: whole pages cross it."},
      {nfc::FilterLocation::die, "die", "On the die: only what passes crosses the channel."},
      {nfc::FilterLocation::none, "none", "Nowhere: whole pages reach the engine, which drops the rows itself."}};
};

}  // namespace csdsim
