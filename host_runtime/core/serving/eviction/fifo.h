// First in, first out.
#pragma once

#include "host_runtime/core/serving/eviction/list_policy.h"

namespace csdsim::host {

class FifoEviction final : public ListPolicy {
 public:
  static constexpr std::string_view kName = "fifo";
  static constexpr std::string_view kSummary = "The block that was stored longest ago leaves, used or not.";

  std::string_view name() const override { return kName; }
  void used(KvBlockSlot) override {}
};

}  // namespace csdsim::host
