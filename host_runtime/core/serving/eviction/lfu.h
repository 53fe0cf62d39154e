// Least frequently used.
#pragma once

#include <map>
#include <vector>

#include "base/lru_list.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"

namespace csdsim::host {

/// Counts the uses of each block while it is stored; storing is the first one. Of blocks with equal counts the least
/// recently used one leaves.
class LfuEviction final : public EvictionPolicy {
 public:
  static constexpr std::string_view kName = "lfu";
  static constexpr std::string_view kSummary =
      "The block with the fewest uses since it was stored leaves; of equals the least recently used.";

  std::string_view name() const override { return kName; }
  void stored(KvBlockSlot slot, KvBlockId) override {
    links_.cover(slot);
    if (slot >= uses_.size()) uses_.resize(slot + std::size_t{1});
    uses_[slot] = 1;
    lists_[1].push_newest(links_, slot);
  }
  void used(KvBlockSlot slot) override {
    removed(slot);
    lists_[++uses_[slot]].push_newest(links_, slot);
  }
  void removed(KvBlockSlot slot) override {
    const auto list = lists_.find(uses_[slot]);
    list->second.remove(links_, slot);
    if (list->second.size() == 0) lists_.erase(list);
  }
  std::optional<KvBlockSlot> evict(KvBlockId, std::span<const std::uint32_t> holds) override {
    for (const auto& [uses, list] : lists_) {
      const KvBlockSlot slot = list.oldest_free(links_, holds);
      if (slot == kNoSlot) continue;
      removed(slot);
      return slot;
    }
    return std::nullopt;
  }

 private:
  LruLinks links_;
  std::vector<std::uint32_t> uses_;
  std::map<std::uint32_t, LruList> lists_;  ///< by the number of uses
};

}  // namespace csdsim::host
