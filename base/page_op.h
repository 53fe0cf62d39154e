// The unit of flash work, shared by everything that emits it (ftl) and everything that times it (nfc).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/address.h"
#include "base/units.h"

namespace csdsim {

enum class PageOpKind : std::uint8_t { read, program, erase };

/// On whose behalf a page operation runs. Priorities between classes are policy of the scheduler.
enum class OpClass : std::uint8_t { host, attend, flush, gc, map };
inline constexpr std::size_t kOpClasses = 5;
constexpr std::array<std::string_view, kOpClasses> kOpClassNames{"host", "attend", "flush", "gc", "map"};

/// One operation on one physical page (for erase: on the block that holds `ppa`).
struct PageOp {
  PhysicalPageAddress ppa;
  PageOpKind kind = PageOpKind::read;
  OpClass op_class = OpClass::host;
  /// Reads: how often the page is sensed and transferred again before its errors can be corrected.
  std::uint8_t retries = 0;
  /// Bytes that cross the channel; the page size, or less when a filter on the die passes only part. 0 for erase.
  std::uint32_t channel_bytes = 0;
};

/// How a page read ended.
struct ReadOutcome {
  std::uint8_t retries = 0;    ///< senses and transfers after the first
  bool uncorrectable = false;  ///< even the last retry left more errors than the code corrects
  bool operator==(const ReadOutcome&) const = default;
};

/// Identifies a batch of page operations that was submitted together and completes as one.
using FlashTicket = StrongId<struct FlashTicketTag, std::uint64_t>;

/// Where the time of a page operation went. Retries add to the stages that they repeat.
enum class FlashStage : std::uint8_t {
  plane_wait,  ///< for the plane to take it
  bus_wait,    ///< for the bus, for its commands and its data
  command,     ///< commands and addresses on the bus
  array,       ///< sensing, programming or erasing, suspensions included
  transfer,    ///< data on the bus, its setup included
  ecc,         ///< waiting for the decoder, and decoding
};
inline constexpr std::size_t kFlashStages = 6;
constexpr std::array<std::string_view, kFlashStages> kFlashStageNames{"plane_wait", "bus_wait", "command",
                                                                      "array",      "transfer", "ecc"};
using FlashStages = std::array<SimTime, kFlashStages>;

/// All operations of batch `ticket` were done at `at`.
struct FlashCompletion {
  FlashTicket ticket;
  SimTime at;
  /// Of the operation that was done last (of those of the same moment, the one submitted last): from its submission on,
  /// they add up to `at`.
  FlashStages stages{};
};

}  // namespace csdsim
