// The map of the block namespace in flash: translation pages, and the entries of them that are cached (DFTL).
//
// Translation page t is logical page exported_ + t: the page map is its global directory, and garbage collection moves
// it like any other page.
#include <cstring>

#include "base/error.h"
#include "ftl/block/block_ftl.h"
#include "ftl/block/plan_builder.h"

namespace csdsim::ftl {

/// Brings the map entry of `page` into the cache: its translation page is read, and one that has to make room is
/// written first.
IoStatus BlockFtl::access_map(LogicalPage page, bool change, PlanBuilder& plan) {
  if (!cache_) return IoStatus::ok;
  IoStatus status = IoStatus::ok;
  if (cache_->touch(page.value)) {
    ++stats_.map_hits;
  } else {
    ++stats_.map_misses;
    if (const auto write_back = cache_->add(page.value)) status = write_translation_page(*write_back, plan);
    read_translation_page(cache_->page_of(page.value), plan);
  }
  if (change) cache_->mark_dirty(page.value);
  return status;
}

void BlockFtl::read_translation_page(std::uint64_t index, PlanBuilder& plan) {
  const LogicalPage page{exported_ + index};
  const PhysicalPageAddress ppa = map_.lookup(page);
  if (!ppa.valid() || plan.programs(ppa)) return;
  // One that cannot be corrected is rebuilt from the out-of-band data of the pages; the time that takes is not
  // modelled.
  PageOp read;
  plan_read(page, ppa, OpClass::map, read);
  plan.read(read);
  plan.touch(blocks_.plane_of(ppa));
  ++stats_.map_pages_read;
}

/// Reads a translation page, and programs it with all its entries as they are.
IoStatus BlockFtl::write_translation_page(std::uint64_t index, PlanBuilder& plan) {
  const LogicalPage page{exported_ + index};
  const std::optional<PhysicalPageAddress> to = place(LogicalPage{index}, Stream::map, plan);
  if (!to) return read_only() ? IoStatus::read_only : IoStatus::out_of_space;
  read_translation_page(index, plan);
  if (store_.carried()) {
    std::vector<std::byte> image(page_size_.value);
    for (std::uint64_t i = 0; i < entries_per_page_ && index * entries_per_page_ + i < exported_; ++i) {
      const std::uint64_t entry = map_.lookup(LogicalPage{index * entries_per_page_ + i}).value;
      std::memcpy(image.data() + i * kMapEntryBytes, &entry, kMapEntryBytes);
    }
    OobTag tag;
    tag.index = page.value;
    store_.write(*to, image, tag);
  }
  cache_->clean(index);
  if (const PhysicalPageAddress old = map_.bind(page, *to); old.valid()) blocks_.invalidate(old);
  ++stats_.map_pages_written;
  return IoStatus::ok;
}

/// A page of the host was moved: its entry changes in the cache, or its translation page has to be written.
void BlockFtl::entry_moved(LogicalPage page) {
  if (!cache_ || page.value >= exported_ || cache_->mark_dirty(page.value)) return;
  stale_.insert(cache_->page_of(page.value));
}

/// Writes the translation pages of entries that were moved without being cached, each once.
void BlockFtl::write_stale_translation_pages(PlanBuilder& plan) {
  while (!stale_.empty()) {
    const std::uint64_t index = *stale_.begin();
    stale_.erase(stale_.begin());
    if (write_translation_page(index, plan) != IoStatus::ok) {
      stale_.insert(index);
      return;
    }
  }
}

}  // namespace csdsim::ftl
