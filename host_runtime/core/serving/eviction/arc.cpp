#include "host_runtime/core/serving/eviction/arc.h"

#include <algorithm>

namespace csdsim::host {

void ArcEviction::adapt(KvBlockId incoming) {
  const auto once = static_cast<double>(once_ghosts_.size()), often = static_cast<double>(often_ghosts_.size());
  if (once_ghosts_.contains(incoming))
    target_ = std::min(target_ + std::max(1.0, often / once), static_cast<double>(capacity_));
  if (often_ghosts_.contains(incoming)) target_ = std::max(target_ - std::max(1.0, once / often), 0.0);
}

bool ArcEviction::replaces_from_once(bool in_often_ghosts) const {
  const auto once = static_cast<double>(once_.size());
  return once_.size() > 0 && (once > target_ || (in_often_ghosts && once == target_));
}

std::optional<KvBlockSlot> ArcEviction::evict(KvBlockId incoming, std::span<const std::uint32_t> holds) {
  const KvBlockSlot from_once = once_.oldest_free(links_, holds), from_often = often_.oldest_free(links_, holds);
  if (from_once == kNoSlot && from_often == kNoSlot) return std::nullopt;
  adapt(incoming);
  adapted_ = incoming;
  const bool remembered = once_ghosts_.contains(incoming) || often_ghosts_.contains(incoming);
  bool keeps_ghost = true, once = false;
  if (!remembered && once_.size() + once_ghosts_.size() >= capacity_) {  // case IV A
    if (once_.size() < capacity_ && once_ghosts_.size() > 0) {
      once_ghosts_.erase_oldest();
      once = replaces_from_once(false);
    } else {
      once = true;
      keeps_ghost = false;
    }
  } else {
    const std::uint64_t all = once_.size() + often_.size() + once_ghosts_.size() + often_ghosts_.size();
    if (!remembered && all >= 2 * capacity_ && often_ghosts_.size() > 0) often_ghosts_.erase_oldest();
    once = replaces_from_once(often_ghosts_.contains(incoming));
  }
  if ((once ? from_once : from_often) == kNoSlot) {
    once = !once;
    keeps_ghost = true;
  }
  const KvBlockSlot slot = once ? from_once : from_often;
  (once ? once_ : often_).remove(links_, slot);
  if (keeps_ghost) (once ? once_ghosts_ : often_ghosts_).push_newest(ids_[slot]);
  return slot;
}

void ArcEviction::stored(KvBlockSlot slot, KvBlockId id) {
  if (adapted_ != id) adapt(id);
  adapted_.reset();
  links_.cover(slot);
  if (slot >= ids_.size()) {
    ids_.resize(slot + std::size_t{1});
    in_often_.resize(slot + std::size_t{1});
  }
  ids_[slot] = id;
  const bool from_once = once_ghosts_.erase(id);
  in_often_[slot] = from_once || often_ghosts_.erase(id);
  (in_often_[slot] ? often_ : once_).push_newest(links_, slot);
}

void ArcEviction::used(KvBlockSlot slot) {
  removed(slot);
  in_often_[slot] = true;
  often_.push_newest(links_, slot);
}

void ArcEviction::removed(KvBlockSlot slot) { (in_often_[slot] ? often_ : once_).remove(links_, slot); }

}  // namespace csdsim::host
