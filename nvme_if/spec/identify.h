// Identify data structures (NVMe Base Specification 1.4, section 5.15): only the fields that this drive fills.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace csdsim::nvme {

/// Controller or Namespace Structure, in CDW10 bits 7:0.
namespace cns {
inline constexpr std::uint8_t identify_namespace = 0x00;
inline constexpr std::uint8_t identify_controller = 0x01;
inline constexpr std::uint8_t active_namespaces = 0x02;
inline constexpr std::uint8_t namespace_descriptors = 0x03;
// Only for drives with Flexible Data Placement.
inline constexpr std::uint8_t nvm_namespace = 0x05;          ///< what only the NVM command set says of it
inline constexpr std::uint8_t nvm_controller = 0x06;         ///< likewise
inline constexpr std::uint8_t independent_namespace = 0x08;  ///< what no command set says of it
inline constexpr std::uint8_t allocated_namespaces = 0x10;
inline constexpr std::uint8_t allocated_namespace = 0x11;
inline constexpr std::uint8_t attached_controllers = 0x12;
inline constexpr std::uint8_t controllers = 0x13;
inline constexpr std::uint8_t endurance_groups = 0x19;
}  // namespace cns

/// Identify Controller, 4096 bytes.
struct IdentifyController {
  std::uint16_t vid = 0;
  std::uint16_t ssvid = 0;
  std::array<char, 20> sn{};  ///< serial number, ASCII, padded with spaces
  std::array<char, 40> mn{};  ///< model number
  std::array<char, 8> fr{};   ///< firmware revision
  std::uint8_t rab = 0;
  std::array<std::uint8_t, 3> ieee{};
  std::uint8_t cmic = 0;
  std::uint8_t mdts = 0;  ///< largest transfer is 4096 << mdts bytes; 0: no limit
  std::uint16_t cntlid = 0;
  std::uint32_t ver = 0;
  std::array<std::uint8_t, 12> reserved_84{};
  std::uint32_t ctratt = 0;  ///< 96: controller_attribute
  std::array<std::uint8_t, 11> reserved_100{};
  std::uint8_t cntrltype = 1;  ///< 111: 1: an I/O controller
  std::array<std::uint8_t, 144> reserved_112{};
  std::uint16_t oacs = 0;  ///< 256
  std::uint8_t acl = 0;    ///< abort command limit, 0's based
  std::uint8_t aerl = 0;   ///< asynchronous event requests that may wait, 0's based
  std::uint8_t frmw = 0;   ///< bit 0: the first firmware slot is read-only; bits 3:1: firmware slots
  std::uint8_t lpa = 0;
  std::uint8_t elpe = 0;  ///< entries of the error log, 0's based
  std::array<std::uint8_t, 17> reserved_263{};
  std::array<std::uint64_t, 2> tnvmcap{};  ///< 280: bytes of the flash for namespaces; 0: not reported
  std::array<std::uint64_t, 2> unvmcap{};  ///< 296: those of no namespace
  std::array<std::uint8_t, 28> reserved_312{};
  std::uint16_t endgidmax = 0;  ///< 340: largest identifier of an endurance group
  std::array<std::uint8_t, 170> reserved_342{};
  std::uint8_t sqes = 0;  ///< 512: required and maximum submission entry size, log2
  std::uint8_t cqes = 0;
  std::uint16_t maxcmd = 0;
  std::uint32_t nn = 0;    ///< number of namespaces
  std::uint16_t oncs = 0;  ///< bit 2: dataset management
  std::uint16_t fuses = 0;
  std::uint8_t fna = 0;
  std::uint8_t vwc = 0;  ///< bit 0: a volatile write cache is present; bits 2:1: Flush of all namespaces, 3: supported
  std::uint16_t awun = 0;   ///< logical blocks that are written as one beside other commands, 0's based
  std::uint16_t awupf = 0;  ///< the same at a loss of power
  std::array<std::uint8_t, 6> reserved_530{};
  std::uint32_t sgls = 0;  ///< 536: bits 1:0 SGLs are supported, 2: in dwords
  std::array<std::uint8_t, 228> reserved_540{};
  std::array<char, 256> subnqn{};  ///< 768: NVMe Qualified Name of the subsystem, ends with a zero byte
  std::array<std::uint8_t, 2048> reserved_1024{};
  // Vendor specific, bytes 4095:3072.
  std::uint32_t kv_magic = 0;  ///< 3072: kKvMagic where the KV commands of nvme_if/spec/kv_command.h are supported
  std::uint32_t kv_version = 0;
  std::uint32_t feed_forward_version =
      0;  ///< version of nvme_if/spec/feed_forward_command.h; 0: the drive does not have it
  std::array<std::uint8_t, 1012> reserved_3084{};
};
static_assert(sizeof(IdentifyController) == 4096);
static_assert(offsetof(IdentifyController, mdts) == 77 && offsetof(IdentifyController, ver) == 80);
static_assert(offsetof(IdentifyController, ctratt) == 96 && offsetof(IdentifyController, endgidmax) == 340);
static_assert(offsetof(IdentifyController, oacs) == 256 && offsetof(IdentifyController, sqes) == 512);
static_assert(offsetof(IdentifyController, nn) == 516 && offsetof(IdentifyController, vwc) == 525);
static_assert(offsetof(IdentifyController, cntrltype) == 111 && offsetof(IdentifyController, awupf) == 528);
static_assert(offsetof(IdentifyController, subnqn) == 768);
static_assert(offsetof(IdentifyController, sgls) == 536 && offsetof(IdentifyController, kv_magic) == 3072);

/// Bits of IdentifyController::ctratt.
namespace controller_attribute {
inline constexpr std::uint32_t endurance_groups = 1u << 4;
inline constexpr std::uint32_t fdp = 1u << 19;  ///< Flexible Data Placement is supported
}  // namespace controller_attribute

/// IdentifyController::vwc, bits 2:1: a Flush with namespace FFFFFFFFh is for all namespaces.
inline constexpr std::uint8_t kFlushesAllNamespaces = 3u << 1;

inline constexpr std::uint32_t kKvMagic = 0x564B5343;  ///< "CSKV"
/// 2 adds AttendMethod::dense_partial to 1; 3 adds to kv_score ranges of tokens, INT8 and INT4 scores, and lists over
/// several heads; 4 adds AttendMethod::sparf_partial; 5 adds attend_flag::drop_lost, 6 kv_rewrite; 7 adds rows of few
/// bits, 8 the same with K component-major; 9 adds kIssuedAgain.
inline constexpr std::uint32_t kKvVersion = 9;

/// One LBA format of a namespace.
struct LbaFormat {
  std::uint16_t ms = 0;    ///< metadata bytes per block
  std::uint8_t lbads = 0;  ///< block size, log2
  std::uint8_t rp = 0;
};
static_assert(sizeof(LbaFormat) == 4);

/// Identify Namespace, 4096 bytes.
struct IdentifyNamespace {
  std::uint64_t nsze = 0;  ///< size in blocks
  std::uint64_t ncap = 0;
  std::uint64_t nuse = 0;
  std::uint8_t nsfeat = 0;
  std::uint8_t nlbaf = 0;  ///< number of LBA formats, 0's based
  std::uint8_t flbas = 0;
  std::array<std::uint8_t, 75> reserved_27{};
  std::uint16_t endgid = 0;  ///< 102
  std::array<std::uint8_t, 24> reserved_104{};
  std::array<LbaFormat, 16> lbaf{};  ///< 128
  std::array<std::uint8_t, 3904> reserved_192{};
};
static_assert(offsetof(IdentifyNamespace, endgid) == 102);
static_assert(sizeof(IdentifyNamespace) == 4096 && offsetof(IdentifyNamespace, lbaf) == 128);

/// What no I/O command set says of a namespace, 4096 bytes.
struct IndependentNamespace {
  std::array<std::uint8_t, 12> reserved_0{};
  std::uint16_t endgid = 0;
  std::uint8_t nstat = 0;  ///< bit 0: ready
  std::array<std::uint8_t, 4081> reserved_15{};
};
static_assert(sizeof(IndependentNamespace) == 4096 && offsetof(IndependentNamespace, nstat) == 14);

}  // namespace csdsim::nvme
