// Host memory that NVMe drivers need.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim::platform {

/// Memory for the queues and PRP lists of one driver: 64-byte commands, 16-byte completions, and the list pages of a
/// command of mdts bytes (511 entries per list page, and one more page for a buffer that is not page-aligned).
inline Bytes queue_memory(std::uint32_t queues, std::uint32_t queue_depth, Bytes mdts) {
  const std::uint64_t lists = mdts.value / 4096 / 511 + 2;
  const std::uint64_t a_queue = std::uint64_t{queue_depth} * (64 + 16 + lists * 4096) + 4 * 4096;
  return {(a_queue * (queues + 1U) + Bytes::mib(2).value - 1) / Bytes::mib(2).value * Bytes::mib(2).value};
}

}  // namespace csdsim::platform
