// Scatter gather lists: descriptors and how a command refers to them (NVMe Base Specification 1.4, 4.2 and 4.4).
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace csdsim::nvme {

/// SubmissionEntry::flags, bits 7:6 (PSDT).
inline constexpr std::uint8_t kPsdtMask = 0xC0;
inline constexpr std::uint8_t kPsdtSgl = 0x40;  ///< the data pointer is an SGL; metadata, if any, is one buffer

enum class SglType : std::uint8_t { data_block = 0, bit_bucket = 1, segment = 2, last_segment = 3 };

/// 16 bytes. SGL1, in place of the PRPs of a command, is one of them.
struct SglDescriptor {
  std::uint64_t address = 0;
  std::uint32_t length = 0;  ///< in bytes: of the data, or of the segment
  std::uint8_t reserved[3] = {};
  std::uint8_t identifier = 0;  ///< bits 7:4 type, bits 3:0 subtype (0: an address)

  static constexpr SglDescriptor of(SglType type, std::uint64_t address, std::uint32_t length) {
    return {address, length, {}, static_cast<std::uint8_t>(static_cast<std::uint8_t>(type) << 4)};
  }
  constexpr std::uint8_t type() const { return identifier >> 4; }
  constexpr std::uint8_t subtype() const { return identifier & 0x0F; }
  constexpr bool is(SglType t) const { return type() == static_cast<std::uint8_t>(t); }
  bool operator==(const SglDescriptor&) const = default;
};
static_assert(sizeof(SglDescriptor) == 16 && std::is_trivially_copyable_v<SglDescriptor>);
static_assert(offsetof(SglDescriptor, length) == 8 && offsetof(SglDescriptor, identifier) == 15);

/// IdentifyController::sgls of a controller that takes data blocks with addresses and lengths in dwords, and SGLs of
/// exactly the length of the data.
inline constexpr std::uint32_t kSglsDword = 0b10;

}  // namespace csdsim::nvme
