// Ranges of a drive's block namespace.
#pragma once

#include <compare>
#include <cstdint>

namespace csdsim::host {

/// Logical blocks [first, first + blocks) of a drive's block namespace.
struct Extent {
  std::uint64_t first = 0;  ///< logical block address
  std::uint64_t blocks = 0;
  constexpr std::uint64_t end() const { return first + blocks; }
  constexpr auto operator<=>(const Extent&) const = default;
};

}  // namespace csdsim::host
