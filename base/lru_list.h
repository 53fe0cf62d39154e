// The least recently used of a set: the one list of this kind.
#pragma once

#include <cstdint>
#include <vector>

namespace csdsim {

inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

/// Neighbours of a slot in the list that it stands in.
struct LruLink {
  std::uint32_t newer = kNoSlot, older = kNoSlot;
};

/// The links of slots, 8 bytes each. A slot stands in one list at most, so lists can share them.
class LruLinks {
 public:
  LruLinks() = default;
  explicit LruLinks(std::size_t slots) : links_(slots) {}

  void cover(std::uint32_t slot) {
    if (slot >= links_.size()) links_.resize(slot + std::size_t{1});
  }
  LruLink& operator[](std::uint32_t slot) { return links_[slot]; }
  const LruLink& operator[](std::uint32_t slot) const { return links_[slot]; }

 private:
  std::vector<LruLink> links_;
};

/// Slots from the newest to the oldest by their last use. `links` are LruLinks, or a list of nodes with their members;
/// every call takes those of the owner.
class LruList {
 public:
  /// Precondition: the slot is in no list.
  template <class Links>
  void push_newest(Links& links, std::uint32_t slot) {
    links[slot].newer = kNoSlot;
    links[slot].older = newest_;
    (newest_ == kNoSlot ? oldest_ : links[newest_].newer) = slot;
    newest_ = slot;
    ++size_;
  }

  template <class Links>
  void remove(Links& links, std::uint32_t slot) {
    const std::uint32_t newer = links[slot].newer, older = links[slot].older;
    (newer == kNoSlot ? newest_ : links[newer].older) = older;
    (older == kNoSlot ? oldest_ : links[older].newer) = newer;
    --size_;
  }

  /// The slot is used.
  template <class Links>
  void to_newest(Links& links, std::uint32_t slot) {
    if (slot == newest_) return;
    remove(links, slot);
    push_newest(links, slot);
  }

  /// The oldest slot for which `may_leave(slot)` is true, or kNoSlot.
  template <class Links, class MayLeave>
  std::uint32_t oldest_if(const Links& links, const MayLeave& may_leave) const {
    std::uint32_t slot = oldest_;
    while (slot != kNoSlot && !may_leave(slot)) slot = links[slot].newer;
    return slot;
  }
  /// The oldest slot that nothing holds, or kNoSlot.
  template <class Links, class Holds>
  std::uint32_t oldest_free(const Links& links, const Holds& holds) const {
    return oldest_if(links, [&holds](std::uint32_t slot) { return holds[slot] == 0; });
  }

  std::uint32_t oldest() const { return oldest_; }
  std::uint32_t newest() const { return newest_; }
  std::uint64_t size() const { return size_; }

 private:
  std::uint32_t newest_ = kNoSlot, oldest_ = kNoSlot;
  std::uint64_t size_ = 0;
};

}  // namespace csdsim
