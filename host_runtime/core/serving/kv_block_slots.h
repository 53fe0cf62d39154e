// The slots of one tier: which block is in which, who holds it, and which leaves when room is needed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "host_runtime/core/serving/eviction/eviction_policy.h"
#include "host_runtime/core/serving/kv_block.h"
#include "host_runtime/core/serving/kv_block_index.h"

namespace csdsim::host {

/// A slot is free, or taken. A taken slot has a name, an id by which find() finds it, or none. It stays while it is
/// held; a slot that nothing holds stays as long as it has a name and its place is not needed.
class KvBlockSlots {
 public:
  /// Throws UserError for a capacity of more than 2^32 - 2 blocks.
  KvBlockSlots(std::optional<std::uint64_t> capacity, std::unique_ptr<EvictionPolicy> eviction);

  std::optional<KvBlockSlot> find(KvBlockId id) const { return index_.find(id); }
  /// find() with ids[i], while the table is fetched for some of the ids after it.
  std::optional<KvBlockSlot> find(std::span<const KvBlockId> ids, std::size_t i) const {
    if (i + kAhead < ids.size()) index_.prefetch(ids[i + kAhead]);
    return index_.find(ids[i]);
  }
  KvBlockId id(KvBlockSlot slot) const { return ids_[slot]; }
  bool named(KvBlockSlot slot) const { return named_[slot] != 0; }
  std::uint32_t holds(KvBlockSlot slot) const { return holds_[slot]; }

  void hold(KvBlockSlot slot) { evictable_ -= holds_[slot]++ == 0 ? 1 : 0; }
  /// Frees a slot without a name once nothing holds it.
  void release(KvBlockSlot slot) {
    if (--holds_[slot] > 0) return;
    if (named_[slot] != 0) {
      ++evictable_;
    } else {
      free_slot(slot);
    }
  }
  void used(KvBlockSlot slot) { eviction_->used(slot); }

  /// Whether `blocks` more fit, after evictions of blocks that nothing holds.
  bool has_room(std::uint64_t blocks) const { return !capacity_ || blocks <= *capacity_ - taken_ + evictable_; }

  /// How many blocks have to leave for `blocks` more.
  std::uint64_t evictions_for(std::uint64_t blocks) const {
    return capacity_ && taken_ + blocks > *capacity_ ? taken_ + blocks - *capacity_ : 0;
  }

  struct Taken {
    KvBlockSlot slot;
    std::optional<KvBlockId> evicted;  ///< the block that had to leave for it
  };
  /// Takes a slot for a block, and holds it once. Precondition: has_room(1), and find(id) finds nothing. Throws
  /// UserError, which names the policy, if it evicts a block that it may not evict, or none.
  Taken take(KvBlockId id);
  /// The same for a slot without a name.
  Taken take_unnamed();
  /// Gives a name to a slot that has none. Precondition: find(id) finds nothing.
  void name(KvBlockSlot slot, KvBlockId id);
  /// Takes the name away: find() does not find the block any more. Frees the slot once nothing holds it.
  void forget(KvBlockSlot slot);

  std::optional<std::uint64_t> capacity() const { return capacity_; }
  std::uint64_t taken() const { return taken_; }
  std::uint64_t evictable() const { return evictable_; }  ///< taken, and held by nothing
  /// Slots that were ever taken.
  std::size_t size() const { return ids_.size(); }
  /// Bytes of the tables, without those of the eviction policy.
  std::size_t memory() const;

 private:
  /// Reads of memory that are under way at a time.
  static constexpr std::size_t kAhead = 8;

  Taken take_slot(KvBlockId incoming);
  void free_slot(KvBlockSlot slot);

  std::optional<std::uint64_t> capacity_;
  std::unique_ptr<EvictionPolicy> eviction_;
  KvBlockIndex index_;
  std::vector<KvBlockId> ids_;
  std::vector<std::uint32_t> holds_;
  std::vector<std::uint8_t> named_;
  std::vector<KvBlockSlot> free_;
  std::uint64_t taken_ = 0, evictable_ = 0;
};

}  // namespace csdsim::host
