// Submission and completion entries and the opcodes of the admin and NVM command sets (NVMe Base Specification 1.4,
// sections 4.2, 4.6, 5 and 6). Little-endian wire layout; the host of the simulator is little-endian as well.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "nvme_if/spec/status.h"
#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

static_assert(std::endian::native == std::endian::little, "wire structs are read in place");

/// Submission queue entry, 64 bytes.
struct SubmissionEntry {
  std::uint8_t opcode = 0;
  std::uint8_t flags = 0;  ///< bits 1:0 FUSE (0: not fused), bits 7:6 PSDT (0: PRPs, 1: an SGL)
  std::uint16_t cid = 0;
  std::uint32_t nsid = 0;
  std::uint32_t cdw2 = 0;
  std::uint32_t cdw3 = 0;
  std::uint64_t mptr = 0;
  std::uint64_t prp1 = 0;
  std::uint64_t prp2 = 0;
  std::uint32_t cdw10 = 0;
  std::uint32_t cdw11 = 0;
  std::uint32_t cdw12 = 0;
  std::uint32_t cdw13 = 0;
  std::uint32_t cdw14 = 0;
  std::uint32_t cdw15 = 0;
};
static_assert(sizeof(SubmissionEntry) == 64 && std::is_trivially_copyable_v<SubmissionEntry>);
static_assert(offsetof(SubmissionEntry, mptr) == 16 && offsetof(SubmissionEntry, prp1) == 24);
static_assert(offsetof(SubmissionEntry, cdw10) == 40);

/// Completion queue entry, 16 bytes.
struct CompletionEntry {
  std::uint32_t dw0 = 0;   ///< command specific
  std::uint32_t dw1 = 0;   ///< reserved
  std::uint16_t sqhd = 0;  ///< submission queue head: entries before it are free
  std::uint16_t sqid = 0;
  std::uint16_t cid = 0;
  std::uint16_t status = 0;  ///< bit 0 phase, bits 8:1 SC, bits 11:9 SCT, bit 15 do not retry

  constexpr bool phase() const { return (status & 1) != 0; }
  constexpr Status code() const { return Status::from_value(static_cast<std::uint16_t>(status >> 1)); }
};
static_assert(sizeof(CompletionEntry) == 16 && std::is_trivially_copyable_v<CompletionEntry>);
static_assert(offsetof(CompletionEntry, sqhd) == 8 && offsetof(CompletionEntry, status) == 14);

constexpr std::uint16_t encode_status(Status s, bool phase) {
  return static_cast<std::uint16_t>((s.value() << 1) | (phase ? 1 : 0));
}

/// Direction of the data of a command: bits 1:0 of the opcode.
enum class DataDirection : std::uint8_t { none = 0, host_to_drive = 1, drive_to_host = 2, bidirectional = 3 };
constexpr DataDirection data_direction(std::uint8_t opcode) { return static_cast<DataDirection>(opcode & 3); }

/// Class of a submission queue in weighted round robin, as Create I/O Submission Queue has it.
enum class QueuePriority : std::uint8_t { urgent = 0, high = 1, medium = 2, low = 3 };
inline constexpr std::size_t kQueuePriorities = 4;

namespace admin_opcode {
inline constexpr std::uint8_t delete_io_sq = 0x00;
inline constexpr std::uint8_t create_io_sq = 0x01;
inline constexpr std::uint8_t get_log_page = 0x02;
inline constexpr std::uint8_t delete_io_cq = 0x04;
inline constexpr std::uint8_t create_io_cq = 0x05;
inline constexpr std::uint8_t identify = 0x06;
inline constexpr std::uint8_t abort = 0x08;
inline constexpr std::uint8_t set_features = 0x09;
inline constexpr std::uint8_t get_features = 0x0A;
inline constexpr std::uint8_t async_event_request = 0x0C;
// Only for drives with Flexible Data Placement.
inline constexpr std::uint8_t namespace_management = 0x0D;
inline constexpr std::uint8_t namespace_attachment = 0x15;
inline constexpr std::uint8_t directive_send = 0x19;
inline constexpr std::uint8_t directive_receive = 0x1A;
}  // namespace admin_opcode

namespace nvm_opcode {
inline constexpr std::uint8_t flush = 0x00;
inline constexpr std::uint8_t write = 0x01;
inline constexpr std::uint8_t read = 0x02;
inline constexpr std::uint8_t dataset_management = 0x09;
// Only for drives with Flexible Data Placement.
inline constexpr std::uint8_t io_management_receive = 0x12;
inline constexpr std::uint8_t io_management_send = 0x1D;
}  // namespace nvm_opcode

namespace feature {
inline constexpr std::uint8_t arbitration = 0x01;
inline constexpr std::uint8_t power_management = 0x02;
inline constexpr std::uint8_t temperature_threshold = 0x04;
inline constexpr std::uint8_t error_recovery = 0x05;
inline constexpr std::uint8_t volatile_write_cache = 0x06;
inline constexpr std::uint8_t number_of_queues = 0x07;
inline constexpr std::uint8_t interrupt_coalescing = 0x08;
inline constexpr std::uint8_t interrupt_vector_configuration = 0x09;
inline constexpr std::uint8_t write_atomicity = 0x0A;
inline constexpr std::uint8_t async_event_configuration = 0x0B;
inline constexpr std::uint8_t fdp = 0x1D;         ///< Flexible Data Placement: whether, and which configuration
inline constexpr std::uint8_t fdp_events = 0x1E;  ///< which of its events are kept, by placement handle
}  // namespace feature

/// CDW12 of Read and Write, bit 30: Force Unit Access.
inline constexpr std::uint32_t kForceUnitAccess = 1u << 30;

/// Feature volatile_write_cache, CDW11 bit 0: writes may complete in the cache.
inline constexpr std::uint32_t kWriteCacheEnabled = 1u << 0;

/// One range of a Dataset Management command, 16 bytes; up to 256 of them.
struct DsmRange {
  std::uint32_t attributes = 0;
  std::uint32_t length = 0;  ///< in logical blocks
  std::uint64_t slba = 0;
};
static_assert(sizeof(DsmRange) == 16);
inline constexpr std::uint32_t kDsmDeallocate = 1u << 2;  ///< CDW11 attribute

/// The 16-bit fields that share a dword; the first named one is the low half.
constexpr std::uint16_t low(std::uint32_t dword) { return static_cast<std::uint16_t>(dword); }
constexpr std::uint16_t high(std::uint32_t dword) { return static_cast<std::uint16_t>(dword >> 16); }

}  // namespace csdsim::nvme
