// Groups of a layout that a selection touches: the page skip of SparF.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace csdsim::engine {

/// Touched groups, ascending, and how many selected rows each holds.
struct PageGroups {
  std::vector<std::uint32_t> groups;
  std::vector<std::uint32_t> rows;

  void clear() {
    groups.clear();
    rows.clear();
  }

  /// Groups {floor(i / group_size)} of the indices below `limit`; `indices` ascend.
  void assign(std::span<const std::uint32_t> indices, std::uint32_t group_size, std::uint32_t limit) {
    clear();
    for (const std::uint32_t i : indices) {
      if (i >= limit) break;
      const std::uint32_t group = i / group_size;
      if (groups.empty() || groups.back() != group) {
        groups.push_back(group);
        rows.push_back(0);
      }
      ++rows.back();
    }
  }
};

}  // namespace csdsim::engine
