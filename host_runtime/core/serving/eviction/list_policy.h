// Base of the policies with one list.
#pragma once

#include "base/lru_list.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"

namespace csdsim::host {

/// Evicts the oldest block of a list.
class ListPolicy : public EvictionPolicy {
 public:
  void stored(KvBlockSlot slot, KvBlockId) override {
    links_.cover(slot);
    order_.push_newest(links_, slot);
  }
  void removed(KvBlockSlot slot) override { order_.remove(links_, slot); }
  std::optional<KvBlockSlot> evict(KvBlockId, std::span<const std::uint32_t> holds) override {
    const KvBlockSlot slot = order_.oldest_free(links_, holds);
    if (slot == kNoSlot) return std::nullopt;
    order_.remove(links_, slot);
    return slot;
  }

 protected:
  LruLinks links_;
  LruList order_;
};

}  // namespace csdsim::host
