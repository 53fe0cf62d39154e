// Adaptive replacement cache (Megiddo, Modha, "ARC: a self-tuning, low overhead replacement cache", FAST 2003, figure
// 4).
#pragma once

#include <limits>
#include <vector>

#include "base/lru_list.h"
#include "base/settings_reader.h"
#include "host_runtime/core/serving/eviction/eviction_policy.h"
#include "host_runtime/core/serving/ghost_list.h"

namespace csdsim::host {

/// T1 has blocks used once, T2 those used more often; B1 and B2 remember the ids of blocks that have left them. A miss
/// that B1 remembers raises the target size of T1, one that B2 remembers lowers it.
///
/// Blocks that are held stay: if the list that should give one up has none to give, the other does.
class ArcEviction final : public EvictionPolicy {
 public:
  static constexpr std::string_view kName = "arc";
  static constexpr std::string_view kSummary =
      "Two LRU lists, of blocks used once and more often; what was evicted too early moves the border between them.";

  explicit ArcEviction(const CachePolicyContext& context)
      : capacity_(context.capacity.value_or(std::numeric_limits<std::uint64_t>::max() / 2)) {
    SettingsReader(kName, context).finish();
  }

  std::string_view name() const override { return kName; }
  void stored(KvBlockSlot slot, KvBlockId id) override;
  void used(KvBlockSlot slot) override;
  void removed(KvBlockSlot slot) override;
  std::optional<KvBlockSlot> evict(KvBlockId incoming, std::span<const std::uint32_t> holds) override;

 private:
  void adapt(KvBlockId incoming);
  bool replaces_from_once(bool in_often_ghosts) const;

  std::uint64_t capacity_;
  double target_ = 0;  ///< p, the target size of T1
  LruLinks links_;
  LruList once_, often_;                  ///< T1, T2
  GhostList once_ghosts_, often_ghosts_;  ///< B1, B2
  std::vector<KvBlockId> ids_;
  std::vector<bool> in_often_;
  std::optional<KvBlockId> adapted_;  ///< evict() has adapted the target to this block
};

}  // namespace csdsim::host
