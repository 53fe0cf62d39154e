// The unit of flash work, shared by everything that emits it (ftl) and everything that times it (nfc).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/address.h"
#include "base/units.h"

namespace csdsim {

enum class PageOpKind : std::uint8_t { read, program, erase };

/// The origin of a page operation. The scheduler decides the priorities between classes.
enum class OpClass : std::uint8_t { host, attend, flush, gc, map };
inline constexpr std::size_t kOpClasses = 5;
constexpr std::array<std::string_view, kOpClasses> kOpClassNames{"host", "attend", "flush", "gc", "map"};

/// One operation on one physical page (for erase: on the block that holds `ppa`).
struct PageOp {
  PhysicalPageAddress ppa;
  PageOpKind kind = PageOpKind::read;
  OpClass op_class = OpClass::host;
  /// Reads only: further attempts (sensing and transfer) that it takes until the errors can be corrected.
  std::uint8_t retries = 0;
  /// Data bytes that cross the channel: the page, or the codewords or filtered rows that are wanted. 0 for erase.
  std::uint32_t channel_bytes = 0;
};

/// The outcome of a page read.
struct ReadOutcome {
  std::uint8_t retries = 0;    ///< senses and transfers after the first
  bool uncorrectable = false;  ///< even the last retry left more errors than the code corrects
  bool operator==(const ReadOutcome&) const = default;
};

/// Identifies a batch of page operations that was submitted together and completes as one.
using FlashTicket = StrongId<struct FlashTicketTag, std::uint64_t>;

/// A part of the time of a page operation. Retries add to the stages that they repeat.
enum class FlashStage : std::uint8_t {
  plane_wait,  ///< waiting until the plane takes the operation
  bus_wait,    ///< waiting for the bus, for commands and for data
  command,     ///< commands and addresses on the bus
  array,       ///< sensing, programming or erasing, suspensions included
  transfer,    ///< data on the bus, its setup included
  ecc,         ///< after the bus: waiting for the filter and passing it, waiting for the decoder, and decoding
};
inline constexpr std::size_t kFlashStages = 6;
constexpr std::array<std::string_view, kFlashStages> kFlashStageNames{"plane_wait", "bus_wait", "command",
                                                                      "array",      "transfer", "ecc"};
using FlashStages = std::array<SimTime, kFlashStages>;

/// All operations of batch `ticket` were done at `at`.
struct FlashCompletion {
  FlashTicket ticket;
  SimTime at;
  /// Stages of the operation that finished last (at equal times, the one submitted last). They add up to the time from
  /// its submission to `at`.
  FlashStages stages{};
};

}  // namespace csdsim
