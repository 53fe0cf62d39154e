// Erase blocks that are bad when the drive leaves the factory.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "base/error.h"
#include "base/rng.h"

namespace csdsim::ftl {

/// Whether an erase block is bad, with probability `share`.
inline bool bad_from_factory(double share, std::uint64_t seed, std::uint32_t block) {
  return static_cast<double>(counter_random(seed, block) >> 11) * 0x1p-53 < share;
}

/// UserError if a plane has more bad blocks than spare blocks. `bad` counts those of each plane.
inline void require_spare_blocks(const std::vector<std::uint32_t>& bad, std::uint32_t spares) {
  for (std::size_t plane = 0; plane < bad.size(); ++plane)
    if (bad[plane] > spares)
      throw UserError(
          fmt::format("plane {} has {} factory bad blocks, more than its {} spare blocks", plane, bad[plane], spares));
}

}  // namespace csdsim::ftl
