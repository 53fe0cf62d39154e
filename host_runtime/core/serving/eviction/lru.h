// Least recently used.
#pragma once

#include "host_runtime/core/serving/eviction/list_policy.h"

namespace csdsim::host {

class LruEviction final : public ListPolicy {
 public:
  static constexpr std::string_view kName = "lru";
  static constexpr std::string_view kSummary = "The block that was used longest ago leaves.";

  std::string_view name() const override { return kName; }
  void used(KvBlockSlot slot) override { order_.to_newest(links_, slot); }
};

}  // namespace csdsim::host
