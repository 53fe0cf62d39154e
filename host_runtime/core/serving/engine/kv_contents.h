// K and V themselves, in runs that carry them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

struct ServedSequence;

/// The memory of the GPUs with what is computed there. An engine says what happens in it, each at the simulated time at
/// which it has ended. Nothing of it takes time.
class KvContents {
 public:
  virtual ~KvContents() = default;

  /// Copies a part of a block of the tiers out of the blocks of a GPU that it consists of, or into them. `bytes` is as
  /// large as a part in the tiers (KvTiersConfig::whole_part()); what lies behind K and V is of no importance.
  virtual void take(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
                    std::span<std::byte> bytes) const = 0;
  virtual void put(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
                   std::span<const std::byte> bytes) = 0;

  /// Copies the blocks of a preempted sequence to host memory, and back into others.
  virtual void swap_out(const ServedSequence& sequence, std::span<const KvBlockSlot> slots) = 0;
  virtual void swap_in(const ServedSequence& sequence) = 0;

  /// Computes K and V of the next `tokens` tokens of a sequence, from those that its blocks hold, and its next token if
  /// these are the last ones.
  virtual void compute(const ServedSequence& sequence, std::uint64_t tokens) = 0;
};

}  // namespace csdsim::host
