#include "host_runtime/core/serving/kv_block_slots.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/core/serving/slot_list.h"

namespace csdsim::host {

KvBlockSlots::KvBlockSlots(std::optional<std::uint64_t> capacity, std::unique_ptr<EvictionPolicy> eviction)
    : capacity_(capacity), eviction_(std::move(eviction)) {
  if (capacity_ && *capacity_ >= kNoSlot)
    throw UserError(fmt::format("a tier of {} KV blocks; at most {} fit", *capacity_, kNoSlot - 1));
}

void KvBlockSlots::free_slot(KvBlockSlot slot) {
  free_.push_back(slot);
  --taken_;
}

KvBlockSlots::Taken KvBlockSlots::take_slot(KvBlockId incoming) {
  Taken taken{};
  if (!capacity_ || taken_ < *capacity_) {
    ++taken_;
    if (free_.empty()) {
      if (ids_.size() >= kNoSlot) throw UserError(fmt::format("more than {} KV blocks in one tier", kNoSlot - 1));
      taken.slot = static_cast<KvBlockSlot>(ids_.size());
      ids_.emplace_back();
      holds_.push_back(0);
      named_.push_back(0);
    } else {
      taken.slot = free_.back();
      free_.pop_back();
    }
  } else {
    const auto slot = eviction_->evict(incoming, holds_);
    if (!slot)
      throw UserError(fmt::format("eviction policy {} evicts nothing, although blocks may leave", eviction_->name()));
    if (*slot >= ids_.size() || named_[*slot] == 0 || holds_[*slot] != 0)
      throw UserError(fmt::format("eviction policy {} evicts slot {}, which it may not", eviction_->name(), *slot));
    taken = {*slot, ids_[*slot]};
    index_.erase(ids_[*slot]);
    named_[*slot] = 0;
    --evictable_;
  }
  holds_[taken.slot] = 1;
  return taken;
}

KvBlockSlots::Taken KvBlockSlots::take(KvBlockId id) {
  const Taken taken = take_slot(id);
  name(taken.slot, id);
  return taken;
}

// No policy remembers the id 0 with a purpose: it is that of no chained hash, up to one chance in 2^64.
KvBlockSlots::Taken KvBlockSlots::take_unnamed() { return take_slot({}); }

void KvBlockSlots::name(KvBlockSlot slot, KvBlockId id) {
  ids_[slot] = id;
  named_[slot] = 1;
  index_.insert(id, slot);
  eviction_->stored(slot, id);
}

void KvBlockSlots::forget(KvBlockSlot slot) {
  if (named_[slot] == 0) return;
  index_.erase(ids_[slot]);
  eviction_->removed(slot);
  named_[slot] = 0;
  if (holds_[slot] > 0) return;
  --evictable_;
  free_slot(slot);
}

std::size_t KvBlockSlots::memory() const {
  return index_.memory() + ids_.capacity() * sizeof(KvBlockId) + holds_.capacity() * sizeof(std::uint32_t) +
         named_.capacity() + free_.capacity() * sizeof(KvBlockSlot);
}

}  // namespace csdsim::host
