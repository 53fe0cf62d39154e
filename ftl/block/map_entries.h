// The page map's entries in controller DRAM, and the translation pages in flash that are out of date.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "ftl/block/block_flash.h"
#include "ftl/block/map_cache.h"

namespace csdsim::ftl {

/// Without map_cache_entries all entries are in DRAM, and there is no translation page.
class MapEntries {
 public:
  explicit MapEntries(const BlockFlash& flash) : flash_(flash) {
    if (flash.config.map_cache_entries)
      cache_.emplace(*flash.config.map_cache_entries, flash.entries_per_page, flash.exported);
  }

  MapCache* cache() { return cache_ ? &*cache_ : nullptr; }
  bool are_cached() const { return cache_.has_value(); }

  /// Call it for each page that was moved: its entry changes in the cache, or its translation page has to be written.
  /// Translation pages have no entry of their own.
  void moved(LogicalPage page) {
    if (!cache_ || page.value >= flash_.exported || cache_->mark_dirty(page.value)) return;
    stale_.insert(cache_->page_of(page.value));
  }

  bool any_stale() const { return !stale_.empty(); }
  /// Removes and returns the first translation page of which an entry changed that is not cached.
  std::uint64_t take_stale() { return stale_.extract(stale_.begin()).value(); }
  /// The translation page has to be written.
  void add_stale(std::uint64_t translation_page) { stale_.insert(translation_page); }

 private:
  const BlockFlash& flash_;
  std::optional<MapCache> cache_;
  std::set<std::uint64_t> stale_;
};

}  // namespace csdsim::ftl
