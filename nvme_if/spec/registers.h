// Controller registers in BAR0 (NVMe Base Specification 1.4, section 3.1): offsets, fields and doorbells.
#pragma once

#include <cstdint>

#include "nvme_if/spec/types.h"

namespace csdsim::nvme {

/// Byte offsets of the registers.
namespace reg {
inline constexpr std::uint64_t cap = 0x00;    ///< Controller Capabilities, 64 bits
inline constexpr std::uint64_t vs = 0x08;     ///< Version
inline constexpr std::uint64_t intms = 0x0C;  ///< Interrupt Mask Set (pin based; reserved with MSI-X)
inline constexpr std::uint64_t intmc = 0x10;  ///< Interrupt Mask Clear
inline constexpr std::uint64_t cc = 0x14;     ///< Controller Configuration
inline constexpr std::uint64_t csts = 0x1C;   ///< Controller Status
inline constexpr std::uint64_t aqa = 0x24;    ///< Admin Queue Attributes
inline constexpr std::uint64_t asq = 0x28;    ///< Admin Submission Queue Base Address, 64 bits
inline constexpr std::uint64_t acq = 0x30;    ///< Admin Completion Queue Base Address, 64 bits
inline constexpr std::uint64_t doorbells = 0x1000;
}  // namespace reg

inline constexpr std::uint32_t kVersion_1_4 = 0x0001'0400;
inline constexpr std::uint32_t kVersion_2_0 = 0x0002'0000;  ///< VS of drives with Flexible Data Placement

/// Values of CC.SHN.
inline constexpr std::uint8_t kNormalShutdown = 1;
inline constexpr std::uint8_t kAbruptShutdown = 2;

/// Controller Capabilities.
struct Cap {
  std::uint16_t mqes = 0;   ///< maximum queue entries supported, 0's based
  bool cqr = true;          ///< queues must be physically contiguous
  bool wrr = true;          ///< AMS: weighted round robin with urgent priority class supported
  std::uint8_t to = 1;      ///< worst time to change CSTS.RDY, in 500 ms
  std::uint8_t dstrd = 0;   ///< doorbell stride is 4 << dstrd bytes
  bool css_nvm = true;      ///< NVM command set supported
  std::uint8_t mpsmin = 0;  ///< smallest memory page is 4096 << mpsmin bytes
  std::uint8_t mpsmax = 0;

  constexpr std::uint64_t encode() const {
    return std::uint64_t{mqes} | (std::uint64_t{cqr} << 16) | (std::uint64_t{wrr} << 17) | (std::uint64_t{to} << 24) |
           (std::uint64_t{dstrd & 0xFu} << 32) | (std::uint64_t{css_nvm} << 37) | (std::uint64_t{mpsmin & 0xFu} << 48) |
           (std::uint64_t{mpsmax & 0xFu} << 52);
  }
  static constexpr Cap decode(std::uint64_t v) {
    return {.mqes = static_cast<std::uint16_t>(v),
            .cqr = ((v >> 16) & 1) != 0,
            .wrr = ((v >> 17) & 1) != 0,
            .to = static_cast<std::uint8_t>(v >> 24),
            .dstrd = static_cast<std::uint8_t>((v >> 32) & 0xF),
            .css_nvm = ((v >> 37) & 1) != 0,
            .mpsmin = static_cast<std::uint8_t>((v >> 48) & 0xF),
            .mpsmax = static_cast<std::uint8_t>((v >> 52) & 0xF)};
  }
};

/// Controller Configuration.
struct Cc {
  bool en = false;
  std::uint8_t css = 0;     ///< 0: NVM command set
  std::uint8_t mps = 0;     ///< memory page size is 4096 << mps bytes
  std::uint8_t ams = 0;     ///< 0: round robin, 1: weighted round robin with urgent priority class
  std::uint8_t shn = 0;     ///< kNormalShutdown or kAbruptShutdown; 0: none
  std::uint8_t iosqes = 0;  ///< log2 of the I/O submission entry size: 6
  std::uint8_t iocqes = 0;  ///< log2 of the I/O completion entry size: 4

  constexpr std::uint32_t encode() const {
    return std::uint32_t{en} | ((css & 7u) << 4) | ((mps & 0xFu) << 7) | ((ams & 7u) << 11) | ((shn & 3u) << 14) |
           ((iosqes & 0xFu) << 16) | ((iocqes & 0xFu) << 20);
  }
  static constexpr Cc decode(std::uint32_t v) {
    return {.en = (v & 1) != 0,
            .css = static_cast<std::uint8_t>((v >> 4) & 7),
            .mps = static_cast<std::uint8_t>((v >> 7) & 0xF),
            .ams = static_cast<std::uint8_t>((v >> 11) & 7),
            .shn = static_cast<std::uint8_t>((v >> 14) & 3),
            .iosqes = static_cast<std::uint8_t>((v >> 16) & 0xF),
            .iocqes = static_cast<std::uint8_t>((v >> 20) & 0xF)};
  }
};

/// Shutdown status in CSTS.SHST.
enum class ShutdownStatus : std::uint8_t { normal = 0, processing = 1, complete = 2 };

/// Controller Status.
struct Csts {
  bool rdy = false;
  bool cfs = false;  ///< controller fatal status
  ShutdownStatus shst = ShutdownStatus::normal;

  constexpr std::uint32_t encode() const {
    return std::uint32_t{rdy} | (std::uint32_t{cfs} << 1) | (static_cast<std::uint32_t>(shst) << 2);
  }
  static constexpr Csts decode(std::uint32_t v) {
    return {(v & 1) != 0, (v & 2) != 0, static_cast<ShutdownStatus>((v >> 2) & 3)};
  }
};

/// Admin Queue Attributes: sizes of the admin queues, both 0's based, 12 bits.
constexpr std::uint32_t encode_aqa(std::uint16_t asqs, std::uint16_t acqs) {
  return (asqs & 0xFFFu) | ((acqs & 0xFFFu) << 16);
}

/// Offset of the submission queue tail doorbell of `queue`.
constexpr std::uint64_t sq_tail_doorbell(QueueId queue, std::uint8_t dstrd) {
  return reg::doorbells + (2u * std::uint64_t{queue.value}) * (std::uint64_t{4} << dstrd);
}

/// Offset of the completion queue head doorbell of `queue`.
constexpr std::uint64_t cq_head_doorbell(QueueId queue, std::uint8_t dstrd) {
  return reg::doorbells + (2u * std::uint64_t{queue.value} + 1) * (std::uint64_t{4} << dstrd);
}

}  // namespace csdsim::nvme
