// The flash of a drive: array, channels and their controllers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/address.h"
#include "base/param.h"
#include "base/quantity.h"
#include "base/units.h"
#include "contracts/page_op.h"
#include "nfc/core/flash_timing.h"
#include "nfc/core/kv_filter.h"
#include "nfc/core/reliability_config.h"

namespace csdsim::nfc {

/// The flash array and its channels: section `flash` of a drive. With page types, read_latency and program_latency are
/// the means of the lists.
struct FlashConfig : FlashTiming {
  FlashGeometry geometry;
  std::string interface;                      ///< name of an interface mode (interface_modes()), or empty
  std::uint32_t rated_cycles = kRatedCycles;  ///< unless `reliability` has its own: see endurance_cycles()
  std::optional<ReliabilityConfig> reliability;
  std::optional<Bytes> slc_cache;  ///< program_latency is that of its cells; unset: all cells are alike
  FilterLocation filter_location = FilterLocation::nfc;

  /// Program/erase cycles that a block is rated for: those of `reliability`, if it states them.
  std::uint32_t endurance_cycles() const {
    return reliability ? reliability->rated_cycles.value_or(rated_cycles) : rated_cycles;
  }
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
