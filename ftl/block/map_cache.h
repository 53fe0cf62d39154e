// The map entries in controller DRAM where it cannot hold them all.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/lru_list.h"

namespace csdsim::ftl {

/// The cached mapping table of DFTL (Gupta, Kim, Urgaonkar, ASPLOS 2009): single entries, the least recently used of
/// which makes room. An entry that was changed in DRAM is dirty until its translation page is written; writing it makes
/// every dirty entry of that page clean ("batch update"). It holds keys only; PageMap holds the addresses.
class MapCache {
 public:
  /// `capacity` entries, at least one; `entries_per_page` of a translation page, for `entries` in all.
  MapCache(std::uint64_t capacity, std::uint64_t entries_per_page, std::uint64_t entries);

  /// Returns whether the entry is cached, and makes it the most recently used.
  bool touch(std::uint64_t entry);
  /// Adds an entry that is not cached. Returns the translation page that has to be written first: that of the evicted
  /// entry, if it was dirty.
  std::optional<std::uint64_t> add(std::uint64_t entry);
  /// The entry changed in DRAM. Returns false if it is not cached.
  bool mark_dirty(std::uint64_t entry);
  /// The translation page was written.
  void clean(std::uint64_t page);

  std::uint64_t page_of(std::uint64_t entry) const { return entry / entries_per_page_; }
  std::size_t size() const { return where_.size(); }
  std::uint64_t dirty_entries() const { return dirty_entries_; }

 private:
  struct Node : LruLink {
    std::uint64_t entry = 0;
    std::uint32_t next_dirty = kNoSlot;  ///< next dirty entry of the same translation page
    bool dirty = false;
  };

  std::uint64_t capacity_;
  std::uint64_t entries_per_page_;
  std::vector<Node> nodes_;
  std::unordered_map<std::uint64_t, std::uint32_t> where_;
  std::vector<std::uint32_t> first_dirty_;  ///< by translation page
  LruList order_;                           ///< nodes by their last use
  std::uint64_t dirty_entries_ = 0;
};

}  // namespace csdsim::ftl
