// Flexible Data Placement (NVMe TP4146; NVMe Base Specification 2.1, sections 3.2.4 and 8.1.10; NVM Command Set 1.1):
// features, log pages and commands. Only the fields that this drive fills.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nvme_if/spec/log_page.h"

namespace csdsim::nvme {

/// Directive Type in CDW12 bits 23:20 of a write; its Directive Specific field is CDW13 bits 31:16.
namespace directive {
inline constexpr std::uint8_t none = 0, data_placement = 2;
}
constexpr std::uint8_t directive_type(std::uint32_t cdw12) { return static_cast<std::uint8_t>(cdw12 >> 20 & 0xF); }
constexpr std::uint32_t encode_directive_type(std::uint8_t type) { return std::uint32_t{type} << 20; }

/// Placement handles that a namespace may list.
inline constexpr std::uint32_t kMostPlacementHandles = 128;

/// Feature fdp: CDW11 bits 15:0 name the endurance group; CDW12, and DW0 of the answer, are this.
constexpr std::uint32_t fdp_config(bool enabled, std::uint8_t configuration) {
  return (enabled ? 1u : 0u) | std::uint32_t{configuration} << 8;
}

/// Log page fdp_configurations: this header, then the descriptors.
struct FdpConfigurations {
  std::uint16_t configurations = 0;  ///< 0's based
  std::uint8_t version = 0;
  std::uint8_t reserved_3 = 0;
  std::uint32_t size = 0;  ///< size of the page in bytes
  std::array<std::uint8_t, 8> reserved_8{};
};
static_assert(sizeof(FdpConfigurations) == 16);

/// A configuration, followed by a ReclaimUnitHandleDescriptor for each handle.
struct FdpConfigurationDescriptor {
  std::uint16_t size = 0;       ///< with the descriptors of handles, a multiple of 8
  std::uint8_t attributes = 0;  ///< bits 3:0 RGIF, bit 4 volatile write cache, bit 7 valid
  std::uint8_t vendor_size = 0;
  std::uint32_t reclaim_groups = 0;
  std::uint16_t handles = 0;
  std::uint16_t most_identifiers = 0;  ///< identifiers of an I/O Management Send, 0's based
  std::uint32_t namespaces = 0;
  std::uint64_t unit_bytes = 0;
  std::uint32_t unit_seconds = 0;  ///< 0: no time limit
  std::array<std::uint8_t, 36> reserved_28{};
};
static_assert(sizeof(FdpConfigurationDescriptor) == 64 && offsetof(FdpConfigurationDescriptor, unit_bytes) == 16);
inline constexpr std::uint8_t kFdpVolatileCache = 1u << 4, kFdpValid = 1u << 7;

struct ReclaimUnitHandleDescriptor {
  std::uint8_t type = 0;  ///< 1 initially, 2 persistently isolated
  std::array<std::uint8_t, 3> reserved_1{};
};
static_assert(sizeof(ReclaimUnitHandleDescriptor) == 4);

/// Log page reclaim_unit_handle_usage: this header, then a descriptor for each handle.
struct ReclaimUnitHandleUsage {
  std::uint16_t handles = 0;
  std::array<std::uint8_t, 6> reserved_2{};
};
struct ReclaimUnitHandleUse {
  std::uint8_t attributes = 0;  ///< 0 unused, 1 specified by the host, 2 by the controller
  std::array<std::uint8_t, 7> reserved_1{};
};
static_assert(sizeof(ReclaimUnitHandleUsage) == 8 && sizeof(ReclaimUnitHandleUse) == 8);

/// Log page fdp_statistics, in bytes since FDP was enabled.
struct FdpStatistics {
  WideCount host_written;
  WideCount media_written;
  WideCount media_erased;
  std::array<std::uint8_t, 16> reserved_48{};
};
static_assert(sizeof(FdpStatistics) == 64);

/// Log page fdp_events: this header, then the events, the oldest first.
struct FdpEvents {
  std::uint32_t events = 0;
  std::array<std::uint8_t, 60> reserved_4{};
};
static_assert(sizeof(FdpEvents) == 64);
inline constexpr std::size_t kFdpEvents = 63;  ///< that are kept of each kind

/// Types of events; those from 80h on are the controller's, the others the host's.
enum class FdpEventType : std::uint8_t {
  unit_not_full = 0x00,  ///< the host has changed a handle whose reclaim unit was not fully written
  unit_time_limit = 0x01,
  reset_changed_handles = 0x02,
  invalid_identifier = 0x03,
  media_reallocated = 0x80,
  handle_changed = 0x81,  ///< implicitly: the controller has changed the reclaim unit of a handle
};
constexpr bool is_host_event(FdpEventType type) { return static_cast<std::uint8_t>(type) < 0x80; }

#pragma pack(push, 1)
struct FdpEvent {
  FdpEventType type{};
  std::uint8_t flags = 0;  ///< fdp_event_flag
  std::uint16_t identifier = 0;
  std::uint64_t timestamp = 0;  ///< bits 47:0 milliseconds since the simulation began
  std::uint32_t nsid = 0;
  std::uint8_t reallocated_flags = 0;  ///< media_reallocated: bit 0, `lba` is valid
  std::uint8_t reserved_17 = 0;
  std::uint16_t reallocated_blocks = 0;  ///< media_reallocated: logical blocks; FFFFh: so many or more
  std::uint64_t lba = 0;                 ///< media_reallocated: one of them
  std::uint32_t reserved_28 = 0;
  std::uint16_t reclaim_group = 0;
  std::uint8_t handle = 0;
  std::array<std::uint8_t, 5> reserved_35{};
  std::array<std::uint8_t, 24> vendor{};
};
#pragma pack(pop)
static_assert(sizeof(FdpEvent) == 64 && std::is_trivially_copyable_v<FdpEvent>);
static_assert(offsetof(FdpEvent, nsid) == 12 && offsetof(FdpEvent, lba) == 20 && offsetof(FdpEvent, handle) == 34);
namespace fdp_event_flag {
inline constexpr std::uint8_t identifier_valid = 1, namespace_valid = 2, location_valid = 4;
}

/// Answer to Get Features fdp_events: one for each type of event.
struct FdpEventDescriptor {
  FdpEventType type{};
  std::uint8_t attributes = 0;  ///< bit 0: enabled
};
static_assert(sizeof(FdpEventDescriptor) == 2);

/// Management Operation in CDW10 bits 7:0 of I/O Management Receive and Send.
namespace management_operation {
inline constexpr std::uint8_t no_action = 0;
inline constexpr std::uint8_t unit_handles = 1;  ///< Receive: their status. Send: update
}  // namespace management_operation

/// I/O Management Receive, status of reclaim unit handles: this header, then the descriptors.
struct ReclaimUnitHandleStatus {
  std::array<std::uint8_t, 14> reserved_0{};
  std::uint16_t descriptors = 0;
};
struct ReclaimUnitHandleStatusDescriptor {
  std::uint16_t identifier = 0;
  std::uint16_t handle = 0;
  std::uint32_t seconds_left = 0;  ///< 0: not reported
  std::uint64_t blocks_left = 0;   ///< logical blocks that the reclaim unit can still be written with
  std::array<std::uint8_t, 16> reserved_16{};
};
static_assert(sizeof(ReclaimUnitHandleStatus) == 16 && sizeof(ReclaimUnitHandleStatusDescriptor) == 32);

/// Endurance Group Information, 512 bytes.
struct EnduranceGroupLog {
  std::uint8_t critical_warning = 0;
  std::array<std::uint8_t, 2> reserved_1{};
  std::uint8_t available_spare = 100;
  std::uint8_t spare_threshold = 0;
  std::uint8_t percentage_used = 0;
  std::array<std::uint8_t, 26> reserved_6{};
  WideCount endurance_estimate;  ///< not reported: 0
  WideCount data_units_read;     ///< billions of bytes, rounded up
  WideCount data_units_written;
  WideCount media_units_written;
  WideCount host_reads;
  WideCount host_writes;
  WideCount media_errors;
  WideCount error_entries;
  WideCount capacity;              ///< bytes
  WideCount unallocated_capacity;  ///< bytes
  std::array<std::uint8_t, 320> reserved_192{};
};
static_assert(sizeof(EnduranceGroupLog) == 512 && offsetof(EnduranceGroupLog, capacity) == 160);

/// Namespace Management, create: the first bytes of its 4096. Then a list of reclaim unit handles, from byte 512 on.
struct NamespaceToCreate {
  std::uint64_t nsze = 0;
  std::uint64_t ncap = 0;
  std::array<std::uint8_t, 10> reserved_16{};
  std::uint8_t flbas = 0;
  std::array<std::uint8_t, 75> reserved_27{};
  std::uint16_t endgid = 0;  ///< 102; 0: the controller chooses
  std::array<std::uint8_t, 288> reserved_104{};
  std::uint16_t placement_handles = 0;  ///< 392
  std::array<std::uint8_t, 118> reserved_394{};
  std::array<std::uint16_t, kMostPlacementHandles> handles{};  ///< 512: reclaim unit handle of each placement handle
  std::array<std::uint8_t, 3328> reserved_768{};
};
static_assert(sizeof(NamespaceToCreate) == 4096 && offsetof(NamespaceToCreate, endgid) == 102);
static_assert(offsetof(NamespaceToCreate, placement_handles) == 392 && offsetof(NamespaceToCreate, handles) == 512);

}  // namespace csdsim::nvme
