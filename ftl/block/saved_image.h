// A page that capacitors have saved.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "base/units.h"
#include "ftl/block/page_map.h"

namespace csdsim::ftl {

struct SavedImage {
  LogicalPage page;
  std::uint64_t stamp = 0;
  bool damaged = false;  ///< could not be corrected
  std::vector<std::byte> bytes;

  /// Bytes that capacitors have to save for it.
  Bytes saved() const;
};

/// Pages that a recovery could not write, because so many blocks have failed that the drive is read-only. They stay in
/// DRAM, where the host reads them, and capacitors save them again.
using UnwrittenImages = std::map<LogicalPage, SavedImage>;

}  // namespace csdsim::ftl
