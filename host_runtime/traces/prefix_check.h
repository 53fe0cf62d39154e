// Checks that ids of KV blocks are what a trace says they are: equal ids for equal prefixes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "host_runtime/core/serving/kv_block_index.h"

namespace csdsim::host {

/// Remembers what each block stands behind. A block that stands at two depths stands behind two different ones at some
/// depth, so that to compare the one before is enough.
class PrefixCheck {
 public:
  struct First {
    std::optional<std::uint64_t> parent;  ///< the file's id of the block before; none: the block begins its prompt
    std::uint64_t line = 0;
  };

  /// What a block stood behind when it was first seen, if that was something else.
  std::optional<First> contradiction(KvBlockId block, const std::optional<std::uint64_t>& parent, std::uint64_t line) {
    if (const auto slot = index_.find(block))
      return first_[*slot].parent == parent ? std::nullopt : std::optional(first_[*slot]);
    index_.insert(block, static_cast<KvBlockSlot>(first_.size()));
    first_.push_back({parent, line});
    return std::nullopt;
  }

 private:
  KvBlockIndex index_;
  std::vector<First> first_;
};

}  // namespace csdsim::host
