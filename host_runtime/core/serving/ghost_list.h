// Ids of blocks that have left: what ARC and S3-FIFO remember of them.
#pragma once

#include <vector>

#include "base/lru_list.h"
#include "host_runtime/core/serving/kv_block_index.h"

namespace csdsim::host {

class GhostList {
 public:
  bool contains(KvBlockId id) const { return index_.find(id).has_value(); }
  std::uint64_t size() const { return order_.size(); }

  /// Precondition: the id is not there.
  void push_newest(KvBlockId id) {
    KvBlockSlot slot = static_cast<KvBlockSlot>(ids_.size());
    if (free_.empty()) {
      ids_.push_back(id);
      links_.cover(slot);
    } else {
      slot = free_.back();
      free_.pop_back();
      ids_[slot] = id;
    }
    index_.insert(id, slot);
    order_.push_newest(links_, slot);
  }

  /// False if the id is not there.
  bool erase(KvBlockId id) {
    const auto slot = index_.find(id);
    if (!slot) return false;
    index_.erase(id);
    order_.remove(links_, *slot);
    free_.push_back(*slot);
    return true;
  }

  /// Precondition: the list is not empty.
  void erase_oldest() { erase(ids_[order_.oldest()]); }

 private:
  KvBlockIndex index_;
  LruLinks links_;
  LruList order_;
  std::vector<KvBlockId> ids_;
  std::vector<KvBlockSlot> free_;
};

}  // namespace csdsim::host
