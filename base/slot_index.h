// Finds slots by numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace csdsim {

/// A hash table from numbers to slots, those of a SlotPool for example. Entries lie in one array, at most a
/// quarter of which is in use: an entry takes no allocation, and is found in the first place as a rule.
class SlotIndex {
 public:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  bool empty() const { return size_ == 0; }
  /// kNone if the number has no slot.
  std::uint32_t find(std::uint64_t number) const { return entries_[place_of(number)].slot; }
  /// The slot of a number, which is `slot` from now on if it has none. `slot` is not kNone.
  std::uint32_t find_or_insert(std::uint64_t number, std::uint32_t slot) {
    std::size_t place = place_of(number);
    if (entries_[place].slot != kNone) return entries_[place].slot;
    if (4 * ++size_ > mask_) [[unlikely]] {
      grow();
      place = place_of(number);
    }
    entries_[place] = {number, slot};
    return slot;
  }
  /// Precondition: the number has a slot.
  void erase(std::uint64_t number) {
    --size_;
    std::size_t hole = place_of(number);
    // Entries behind the hole that would be found no more move into it.
    for (std::size_t at = next(hole); entries_[at].slot != kNone; at = next(at)) {
      const std::size_t wanted = first_place(entries_[at].number);
      if (((at - wanted) & mask_) < ((at - hole) & mask_)) continue;
      entries_[hole] = entries_[at];
      hole = at;
    }
    entries_[hole].slot = kNone;
  }

 private:
  struct Entry {
    std::uint64_t number = 0;
    std::uint32_t slot = kNone;
  };

  std::size_t next(std::size_t place) const { return (place + 1) & mask_; }
  /// The upper bits of the product depend on all bits of the number.
  std::size_t first_place(std::uint64_t number) const { return (number * 0x9E3779B97F4A7C15u) >> shift_; }
  /// Where the number is, or would be.
  std::size_t place_of(std::uint64_t number) const {
    std::size_t place = first_place(number);
    while (entries_[place].slot != kNone && entries_[place].number != number) place = next(place);
    return place;
  }
  [[gnu::noinline]] void grow() {
    const std::vector<Entry> old = std::exchange(entries_, std::vector<Entry>(2 * entries_.size()));
    mask_ = entries_.size() - 1;
    --shift_;
    for (const Entry& entry : old)
      if (entry.slot != kNone) entries_[place_of(entry.number)] = entry;
  }

  std::vector<Entry> entries_ = std::vector<Entry>(16);
  std::size_t mask_ = 15;  ///< number of entries, a power of two, minus 1
  int shift_ = 60;         ///< 64 - the bits of a place
  std::size_t size_ = 0;
};

}  // namespace csdsim
