// Log pages and asynchronous events (NVMe Base Specification 1.4, sections 5.2 and 5.14): only the fields that this
// drive fills.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace csdsim::nvme {

/// Log Page Identifier, in CDW10 bits 7:0 of Get Log Page.
namespace log_page {
inline constexpr std::uint8_t error_information = 0x01;
inline constexpr std::uint8_t smart = 0x02;
inline constexpr std::uint8_t firmware_slots = 0x03;
// Only for drives with Flexible Data Placement, which comply with NVMe 2.0.
inline constexpr std::uint8_t supported_log_pages = 0x00;
inline constexpr std::uint8_t commands_supported = 0x05;
inline constexpr std::uint8_t endurance_group = 0x09;
inline constexpr std::uint8_t features_supported = 0x12;
inline constexpr std::uint8_t fdp_configurations = 0x20;
inline constexpr std::uint8_t reclaim_unit_handle_usage = 0x21;
inline constexpr std::uint8_t fdp_statistics = 0x22;
inline constexpr std::uint8_t fdp_events = 0x23;
}  // namespace log_page

/// CDW10 bit 15 of Get Log Page: reading the page does not allow further events that it reports.
inline constexpr std::uint32_t kRetainAsyncEvent = 1u << 15;

/// A command that ended with an error, 64 bytes. The newest entry comes first; error_count 0 marks an unused entry.
struct ErrorLogEntry {
  std::uint64_t error_count = 0;  ///< 1 for the first error of the controller's life
  std::uint16_t sqid = 0;
  std::uint16_t cid = 0;
  std::uint16_t status = 0;                ///< as in the completion, without a phase
  std::uint16_t parameter_error = 0xFFFF;  ///< not stated
  std::uint64_t lba = 0;                   ///< first one of a block command
  std::uint32_t nsid = 0;
  std::array<std::uint8_t, 36> reserved_28{};
};
static_assert(sizeof(ErrorLogEntry) == 64 && std::is_trivially_copyable_v<ErrorLogEntry>);
static_assert(offsetof(ErrorLogEntry, lba) == 16);
inline constexpr std::size_t kErrorLogEntries = 64;

/// Bits of SmartLog::critical_warning, and of the event configuration that enables their events.
namespace critical_warning {
inline constexpr std::uint8_t spare_below_threshold = 1u << 0;
inline constexpr std::uint8_t read_only = 1u << 3;
}  // namespace critical_warning

/// A 16-byte counter of which 8 bytes are enough.
struct WideCount {
  std::uint64_t value = 0;
  std::uint64_t above = 0;
};

/// SMART / Health Information, 512 bytes. The drive has no sensor: the temperature is 0.
struct SmartLog {
  std::uint8_t critical_warning = 0;
  std::array<std::uint8_t, 2> temperature{};
  std::uint8_t available_spare = 100;  ///< percent
  std::uint8_t spare_threshold = 0;    ///< percent
  std::uint8_t percentage_used = 0;    ///< used percentage of the rated cycles; 255 at most
  std::array<std::uint8_t, 26> reserved_6{};
  WideCount data_units_read;  ///< by block commands: thousands of 512 bytes, rounded up
  WideCount data_units_written;
  WideCount host_reads;  ///< block commands
  WideCount host_writes;
  WideCount busy_minutes;  ///< not counted: 0
  WideCount power_cycles;
  WideCount power_on_hours;
  WideCount unsafe_shutdowns;
  WideCount media_errors;   ///< commands that ended with unrecovered_read_error
  WideCount error_entries;  ///< entries of the error log in the controller's life
  std::array<std::uint8_t, 320> reserved_192{};
};
static_assert(sizeof(SmartLog) == 512 && offsetof(SmartLog, data_units_read) == 32);
static_assert(offsetof(SmartLog, media_errors) == 160);

/// Firmware Slot Information, 512 bytes.
struct FirmwareSlots {
  std::uint8_t active = 1;
  std::array<std::uint8_t, 7> reserved_1{};
  std::array<char, 8> slot_1{};
  std::array<std::uint8_t, 496> reserved_16{};
};
static_assert(sizeof(FirmwareSlots) == 512);

/// DW0 of the completion of an asynchronous event request.
enum class AsyncEventType : std::uint8_t { error = 0, smart = 1 };
namespace async_error {
inline constexpr std::uint8_t invalid_doorbell_register = 0;
inline constexpr std::uint8_t invalid_doorbell_value = 1;
}  // namespace async_error
namespace async_smart {
inline constexpr std::uint8_t reliability = 0;
inline constexpr std::uint8_t spare_below_threshold = 2;
}  // namespace async_smart
constexpr std::uint32_t async_event(AsyncEventType type, std::uint8_t information, std::uint8_t page) {
  return static_cast<std::uint32_t>(type) | std::uint32_t{information} << 8 | std::uint32_t{page} << 16;
}

/// Requests that wait for an event at a time; one more is refused.
inline constexpr std::uint8_t kAsyncEventRequests = 4;

}  // namespace csdsim::nvme
