// Chooses the KV block that leaves a full tier.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

/// The arguments from which a policy is made.
struct CachePolicyContext {
  std::optional<std::uint64_t> capacity;        ///< blocks of the tier; none: unlimited
  std::map<std::string, std::string> settings;  ///< the policy's own, by name
};

/// Keeps an order of the blocks of one tier. The tier calls it; a policy calls nothing. Slots are small numbers, so
/// that a policy keeps what it knows in arrays.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  virtual std::string_view name() const = 0;

  /// A block that was not there is stored in this slot.
  virtual void stored(KvBlockSlot slot, KvBlockId id) = 0;
  /// A request uses a stored block. Blocks of one request are used from the last to the first.
  virtual void used(KvBlockSlot slot) = 0;
  /// A block has left for another reason than evict(): its store or its load has failed, or it was dropped.
  virtual void removed(KvBlockSlot slot) = 0;
  /// Chooses the block that makes room for `incoming` and forgets it. stored() of `incoming` follows. It must be one
  /// with holds[slot] = 0; others are being read or written. Nothing if all are held.
  virtual std::optional<KvBlockSlot> evict(KvBlockId incoming, std::span<const std::uint32_t> holds) = 0;
};

}  // namespace csdsim::host
