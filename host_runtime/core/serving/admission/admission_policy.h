// Chooses the KV blocks that a tier stores at all.
#pragma once

#include <string_view>

#include "host_runtime/core/serving/eviction/eviction_policy.h"

namespace csdsim::host {

class AdmissionPolicy {
 public:
  virtual ~AdmissionPolicy() = default;

  virtual std::string_view name() const = 0;
  /// A request has this block. Called once per request and block, whether the tier has the block or not.
  virtual void seen(KvBlockId id) = 0;
  /// Whether a block that the tier does not have may be stored. The answer changes only with seen().
  virtual bool admits(KvBlockId id) const = 0;
};

}  // namespace csdsim::host
