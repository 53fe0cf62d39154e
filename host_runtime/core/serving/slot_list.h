// Lists of slots in one pair of arrays: a slot stands in one list at most.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

inline constexpr KvBlockSlot kNoSlot = ~KvBlockSlot{0};

/// Neighbours of slots, 8 bytes each. Shared by the lists of one policy.
struct SlotLinks {
  struct Link {
    KvBlockSlot newer = kNoSlot, older = kNoSlot;
  };
  std::vector<Link> links;

  void cover(KvBlockSlot slot) {
    if (slot >= links.size()) links.resize(slot + std::size_t{1});
  }
};

/// From the newest slot to the oldest.
class SlotList {
 public:
  void push_newest(SlotLinks& all, KvBlockSlot slot) {
    all.links[slot] = {kNoSlot, newest_};
    (newest_ == kNoSlot ? oldest_ : all.links[newest_].newer) = slot;
    newest_ = slot;
    ++size_;
  }

  void remove(SlotLinks& all, KvBlockSlot slot) {
    const SlotLinks::Link link = all.links[slot];
    (link.newer == kNoSlot ? newest_ : all.links[link.newer].older) = link.older;
    (link.older == kNoSlot ? oldest_ : all.links[link.older].newer) = link.newer;
    --size_;
  }

  void to_newest(SlotLinks& all, KvBlockSlot slot) {
    if (slot == newest_) return;
    remove(all, slot);
    push_newest(all, slot);
  }

  /// The oldest slot that nothing holds, or kNoSlot.
  template <class Holds>
  KvBlockSlot oldest_free(const SlotLinks& all, const Holds& holds) const {
    KvBlockSlot slot = oldest_;
    while (slot != kNoSlot && holds[slot] != 0) slot = all.links[slot].newer;
    return slot;
  }

  KvBlockSlot oldest() const { return oldest_; }
  KvBlockSlot newest() const { return newest_; }
  std::uint64_t size() const { return size_; }

 private:
  KvBlockSlot newest_ = kNoSlot, oldest_ = kNoSlot;
  std::uint64_t size_ = 0;
};

}  // namespace csdsim::host
