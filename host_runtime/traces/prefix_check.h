// Whether ids of KV blocks are what a trace says they are: equal ids for equal prefixes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "host_runtime/core/serving/kv_block_index.h"

namespace csdsim::host {

/// Remembers what each id stands behind. An id that stands at two depths stands behind two different ids at some depth,
/// so that to compare the block before is enough.
class PrefixCheck {
 public:
  struct First {
    std::optional<KvBlockId> parent;  ///< none: the id begins its prompt
    std::uint64_t line = 0;
    bool operator==(const First&) const = default;
  };

  /// What an id stood behind when it was first seen, if that was something else.
  std::optional<First> contradiction(KvBlockId id, const std::optional<KvBlockId>& parent, std::uint64_t line) {
    if (const auto slot = index_.find(id))
      return first_[*slot].parent == parent ? std::nullopt : std::optional(first_[*slot]);
    index_.insert(id, static_cast<KvBlockSlot>(first_.size()));
    first_.push_back({parent, line});
    return std::nullopt;
  }

 private:
  KvBlockIndex index_;
  std::vector<First> first_;
};

}  // namespace csdsim::host
