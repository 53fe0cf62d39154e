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
#include "scenario/reliability_config.h"

namespace csdsim::scenario {

enum class BusArbitration : std::uint8_t { fifo, command_first, data_first };
enum class PlaneMode : std::uint8_t { independent, multi_plane };
enum class PlaneOrder : std::uint8_t { arrival, reads_first };
enum class Suspend : std::uint8_t { program, erase, program_erase };
enum class FilterLocation : std::uint8_t { nfc, die };

/// Latencies by page type, a list for reads, programs or both, with an item a bit of the cell.
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

struct PackagesConfig {
  std::uint32_t dies = 2;
  SimTime select_time = SimTime::nanoseconds(50);
};

/// The flash array and its channels. With page types, read_latency and program_latency are the means of the lists.
struct FlashConfig {
  FlashGeometry geometry;
  std::string interface;  ///< of nfc::interface_modes(), or empty
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
  std::optional<PackagesConfig> packages;
  std::optional<Bandwidth> ecc_bandwidth;     ///< of the decoder of a channel
  std::optional<std::uint32_t> page_buffers;  ///< of a channel
  std::optional<ReliabilityConfig> reliability;
  FilterLocation filter_location = FilterLocation::nfc;
};

void describe(ParamVisitor& v, PageTypesConfig& c);
void describe(ParamVisitor& v, CacheConfig& c);
void describe(ParamVisitor& v, SuspendConfig& c);
void describe(ParamVisitor& v, PackagesConfig& c);
void describe(ParamVisitor& v, FlashConfig& c);

}  // namespace csdsim::scenario

namespace csdsim {

template <>
struct EnumValues<scenario::BusArbitration> {
  static constexpr EnumValue<scenario::BusArbitration> values[] = {
      {scenario::BusArbitration::fifo, "fifo", "Requests take the bus in the order of asking."},
      {scenario::BusArbitration::command_first, "command_first", "Commands go before data: planes start sooner."},
      {scenario::BusArbitration::data_first, "data_first", "Data goes before commands: planes are emptied sooner."}};
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
struct EnumValues<scenario::PlaneMode> {
  static constexpr EnumValue<scenario::PlaneMode> values[] = {
      {scenario::PlaneMode::independent, "independent", "Each plane works on its own."},
      {scenario::PlaneMode::multi_plane, "multi_plane", "The planes of a die work together, on what waits for them."}};
};
template <>
struct EnumValues<scenario::PlaneOrder> {
  static constexpr EnumValue<scenario::PlaneOrder> values[] = {
      {scenario::PlaneOrder::arrival, "arrival", "What came first."},
      {scenario::PlaneOrder::reads_first, "reads_first", "Reads, then programs and erases."}};
};
template <>
struct EnumValues<scenario::Suspend> {
  static constexpr EnumValue<scenario::Suspend> values[] = {
      {scenario::Suspend::program, "program", "Reads suspend programs."},
      {scenario::Suspend::erase, "erase", "Reads suspend erases."},
      {scenario::Suspend::program_erase, "program_erase", "Reads suspend programs and erases."}};
};
template <>
struct EnumValues<scenario::FilterLocation> {
  static constexpr EnumValue<scenario::FilterLocation> values[] = {
      {scenario::FilterLocation::nfc, "nfc", "On the controller's side of the channel: whole pages cross it."},
      {scenario::FilterLocation::die, "die", "On the die: only what passes crosses the channel."}};
};

}  // namespace csdsim
