// Page reads that were planned together, and what finding the pages costs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "contracts/page_op.h"

namespace csdsim {

/// The cost of finding pages travels with the reads: the code that runs them charges the firmware with `lookups`.
struct ReadPlan {
  std::vector<PageOp> ops;
  /// Bytes of each page that are wanted and that a filter passes. The code that counts filtered bytes moves them out.
  std::vector<std::uint32_t> wanted;
  std::uint64_t lookups = 0;  ///< map entries that the firmware looks up to find these pages; 0 without pages
  /// Index of the first page of values. The pages before it hold keys, in the same order of tokens. Unset: no page
  /// depends on another.
  std::optional<std::size_t> values_from;

  bool empty() const { return ops.empty(); }
  std::size_t size() const { return ops.size(); }
  void clear() {
    ops.clear();
    wanted.clear();
    lookups = 0;
    values_from.reset();
  }
};

}  // namespace csdsim
