// The eviction policy of the blocks in GPU memory.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "host_runtime/core/serving/eviction/list_policy.h"

namespace csdsim::host {

/// The least recently used block leaves. Blocks of sequences that run are passed over once: they move to the newest
/// end, where they belong when their sequences release them.
class PoolLru final : public ListPolicy {
 public:
  std::string_view name() const override { return "lru"; }
  void used(KvBlockSlot slot) override { order_.to_newest(links_, slot); }
  std::optional<KvBlockSlot> evict(KvBlockId, std::span<const std::uint32_t> holds) override {
    for (std::uint64_t left = order_.size(); left > 0; --left) {
      const KvBlockSlot slot = order_.oldest();
      if (holds[slot] == 0) {
        order_.remove(links_, slot);
        return slot;
      }
      order_.to_newest(links_, slot);
    }
    return std::nullopt;
  }
};

}  // namespace csdsim::host
