// The page cache of an operating system: which chunks of files are in host memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>

#include "base/lru_list.h"
#include "base/slot_pool.h"
#include "base/units.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// A chunk of a file: consecutive blocks of a drive that are read and written together.
struct ChunkKey {
  std::uint32_t drive = 0;
  std::uint64_t first_block = 0;
  constexpr bool operator==(const ChunkKey&) const = default;

  /// Chunks that follow each other get buckets that follow each other, so that a scan stays in the cache.
  struct Hash {
    std::size_t operator()(const ChunkKey& key) const noexcept {
      return static_cast<std::size_t>(key.first_block + (std::uint64_t{key.drive} << 40));
    }
  };
};

/// The chunks in a page cache. `Value` is what the owner keeps with a chunk: data, state of its I/O.
///
/// Least recently used chunks leave first. This is what makes a cyclic scan of more than fits miss every time, and a
/// scan of what fits never. Linux has two lists and detects refaults, which keeps a part of a cyclic scan; that is not
/// modelled.
template <class Value>
class PageCache {
 public:
  struct Entry {
    Bytes size;
    bool pinned = false;  ///< has I/O in flight and cannot leave
    Value value = {};

   private:
    friend class PageCache;
    std::uint32_t slot = 0;
  };

  explicit PageCache(Bytes capacity = {}) : capacity_(capacity) {}

  void set_capacity(Bytes capacity) { capacity_ = capacity; }
  Bytes capacity() const { return capacity_; }
  Bytes used() const { return used_; }
  std::size_t size() const { return entries_.size(); }

  /// Null if the chunk is not in the cache. Does not count as a use.
  Entry* find(ChunkKey key) {
    const auto found = entries_.find(key);
    return found == entries_.end() ? nullptr : &found->second;
  }

  /// The entry of a chunk, as the most recently used one. It is made if it is not there; its value is empty then.
  Entry& use(ChunkKey key, Bytes size) {
    const auto [at, made] = entries_.try_emplace(key);
    Entry& entry = at->second;
    if (!made) {
      order_.to_newest(links_, entry.slot);
      return entry;
    }
    entry.size = size;
    entry.slot = keys_.put(key);
    links_.cover(entry.slot);
    order_.push_newest(links_, entry.slot);
    used_ += size;
    return entry;
  }

  /// The least recently used chunk that has to leave, as long as the cache holds more than its capacity when `leaving`
  /// bytes have left; nothing if it does not, or if all others are pinned. `keep` does not leave.
  std::optional<ChunkKey> excess(std::optional<ChunkKey> keep, Bytes leaving) {
    if (used_ - leaving <= capacity_) return std::nullopt;
    const std::uint32_t slot =
        order_.oldest_if(links_, [&](std::uint32_t s) { return keys_[s] != keep && !entries_.at(keys_[s]).pinned; });
    return slot == kNoSlot ? std::nullopt : std::optional(keys_[slot]);
  }

  /// Pinned chunks at the front would be looked at again and again: this one comes last.
  void pin_to_end(Entry& entry) {
    entry.pinned = true;
    order_.to_newest(links_, entry.slot);
  }

  /// Chunks without I/O in flight for which `gone(key)` is true leave.
  template <class Gone>
  void erase_if(const Gone& gone) {
    for (auto at = entries_.begin(); at != entries_.end();) {
      const ChunkKey key = at->first;
      const bool leaves = !at->second.pinned && gone(key);
      ++at;
      if (leaves) erase(key);
    }
  }

  void erase(ChunkKey key) {
    const auto at = entries_.find(key);
    used_ = used_ - at->second.size;
    order_.remove(links_, at->second.slot);
    keys_.give_back(at->second.slot);
    entries_.erase(at);
  }

 private:
  Bytes capacity_;
  Bytes used_;
  std::unordered_map<ChunkKey, Entry, ChunkKey::Hash> entries_;
  SlotPool<ChunkKey> keys_;
  LruLinks links_;
  LruList order_;  ///< slots of keys_ in the order of their use
};

}  // namespace csdsim::host
