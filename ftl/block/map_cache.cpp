#include "ftl/block/map_cache.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

MapCache::MapCache(std::uint64_t capacity, std::uint64_t entries_per_page, std::uint64_t entries)
    : capacity_(std::min({capacity, entries, std::uint64_t{kNoSlot}})),
      entries_per_page_(entries_per_page),
      first_dirty_((entries + entries_per_page - 1) / entries_per_page, kNoSlot) {
  where_.reserve(capacity_);
}

bool MapCache::touch(std::uint64_t entry) {
  const auto at = where_.find(entry);
  if (at == where_.end()) return false;
  order_.to_newest(nodes_, at->second);
  return true;
}

std::optional<std::uint64_t> MapCache::add(std::uint64_t entry) {
  std::optional<std::uint64_t> write_back;
  std::uint32_t n;
  if (where_.size() < capacity_) {
    n = static_cast<std::uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    n = order_.oldest();
    if (nodes_[n].dirty) {
      write_back = page_of(nodes_[n].entry);
      clean(*write_back);
    }
    where_.erase(nodes_[n].entry);
    order_.remove(nodes_, n);
  }
  nodes_[n].entry = entry;
  order_.push_newest(nodes_, n);
  where_.emplace(entry, n);
  return write_back;
}

bool MapCache::mark_dirty(std::uint64_t entry) {
  const auto at = where_.find(entry);
  if (at == where_.end()) return false;
  Node& node = nodes_[at->second];
  if (!node.dirty) {
    node.dirty = true;
    node.next_dirty = std::exchange(first_dirty_[page_of(entry)], at->second);
    ++dirty_entries_;
  }
  return true;
}

void MapCache::clean(std::uint64_t page) {
  for (std::uint32_t n = std::exchange(first_dirty_[page], kNoSlot); n != kNoSlot;) {
    nodes_[n].dirty = false;
    n = std::exchange(nodes_[n].next_dirty, kNoSlot);
    --dirty_entries_;
  }
}

}  // namespace csdsim::ftl
