// An eviction policy for KV blocks of your own: SIEVE (Zhang, Yang, Yue, Vigfusson, Rashmi, NSDI 2024).
#include <algorithm>
#include <vector>

#include "base/lru_list.h"
#include "host_runtime/plugin/eviction_plugin.h"

using namespace csdsim;

namespace {

/// Blocks stand in the order in which they were stored. A hand goes from the oldest to the newest and starts again: a
/// block that was used since the hand came by stays, another one leaves. `most_uses` uses save a block that many times;
/// SIEVE has 1.
class Sieve final : public host::EvictionPolicy {
 public:
  explicit Sieve(const host::CachePolicyContext& context) {
    SettingsReader settings(name(), context);
    most_uses_ = settings.value("most_uses", std::uint32_t{1}, {0, 255});
    settings.finish();
  }

  std::string_view name() const override { return "sieve"; }

  void stored(host::KvBlockSlot slot, host::KvBlockId) override {
    links_.cover(slot);
    if (slot >= uses_.size()) uses_.resize(slot + std::size_t{1});
    uses_[slot] = 0;
    order_.push_newest(links_, slot);
  }

  void used(host::KvBlockSlot slot) override { uses_[slot] = std::min(uses_[slot] + 1, most_uses_); }

  void removed(host::KvBlockSlot slot) override {
    if (hand_ == slot) hand_ = links_[slot].newer;
    order_.remove(links_, slot);
  }

  std::optional<host::KvBlockSlot> evict(host::KvBlockId, std::span<const std::uint32_t> holds) override {
    if (order_.oldest_free(links_, holds) == kNoSlot) return std::nullopt;
    for (;;) {
      if (hand_ == kNoSlot) hand_ = order_.oldest();
      const host::KvBlockSlot slot = hand_;
      hand_ = links_[slot].newer;
      if (holds[slot] != 0) continue;  // a request reads or writes it
      if (uses_[slot] == 0) {
        order_.remove(links_, slot);
        return slot;
      }
      --uses_[slot];
    }
  }

 private:
  std::uint32_t most_uses_ = 1;
  LruLinks links_;
  LruList order_;
  host::KvBlockSlot hand_ = kNoSlot;
  std::vector<std::uint32_t> uses_;
};

}  // namespace

CSDSIM_EVICTION_POLICY(Sieve, "sieve", "A hand goes round; the first block that was not used since leaves.")
