// Finds the slot of a KV block by its id.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/prefetch.h"
#include "host_runtime/core/serving/kv_block.h"

namespace csdsim::host {

/// A hash table with linear probing and 16 bytes per entry, at most half full. Erased entries leave no gap.
class KvBlockIndex {
 public:
  std::optional<KvBlockSlot> find(KvBlockId id) const {
    for (std::size_t at = home(id); entries_[at].slot != kFree; at = (at + 1) & mask())
      if (entries_[at].id == id) return entries_[at].slot;
    return std::nullopt;
  }

  /// Begins to fetch what find() will read. It changes only how long that takes.
  void prefetch(KvBlockId id) const { prefetch_line(&entries_[home(id)]); }

  /// Precondition: the id is not there.
  void insert(KvBlockId id, KvBlockSlot slot) {
    if ((size_ + 1) * 2 > entries_.size()) grow();
    place({id, slot});
    ++size_;
  }

  /// Precondition: the id is there.
  void erase(KvBlockId id) {
    std::size_t gap = home(id);
    while (entries_[gap].slot == kFree || entries_[gap].id != id) gap = (gap + 1) & mask();
    for (std::size_t at = (gap + 1) & mask(); entries_[at].slot != kFree; at = (at + 1) & mask()) {
      // An entry may move back to the gap if that is not before its home.
      if (((at - home(entries_[at].id)) & mask()) < ((at - gap) & mask())) continue;
      entries_[gap] = entries_[at];
      gap = at;
    }
    entries_[gap].slot = kFree;
    --size_;
  }

  std::size_t size() const { return size_; }
  std::size_t memory() const { return entries_.capacity() * sizeof(Entry); }

 private:
  static constexpr KvBlockSlot kFree = ~KvBlockSlot{0};
  struct Entry {
    KvBlockId id;
    KvBlockSlot slot = kFree;
  };

  std::size_t mask() const { return entries_.size() - 1; }
  /// Multiplication by 2^64 over the golden ratio spreads consecutive numbers, too (Knuth, volume 3, section 6.4).
  std::size_t home(KvBlockId id) const { return (id.value * 0x9E3779B97F4A7C15ULL) >> shift_; }

  void place(const Entry& entry) {
    std::size_t at = home(entry.id);
    while (entries_[at].slot != kFree) at = (at + 1) & mask();
    entries_[at] = entry;
  }

  void grow() {
    std::vector<Entry> old(entries_.size() * 2);
    old.swap(entries_);
    --shift_;
    for (const Entry& entry : old)
      if (entry.slot != kFree) place(entry);
  }

  std::vector<Entry> entries_ = std::vector<Entry>(16);
  int shift_ = 60;  ///< leaves as many bits as number the entries
  std::size_t size_ = 0;
};

}  // namespace csdsim::host
