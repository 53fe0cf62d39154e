#include "ftl/block/map_pages.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

namespace csdsim::ftl {

IoStatus MapPages::access(LogicalPage page, bool change, PlanBuilder& plan) {
  MapCache* const cache = entries_.cache();
  if (cache == nullptr) return IoStatus::ok;
  IoStatus status = IoStatus::ok;
  if (cache->touch(page.value)) {
    ++flash_.stats.map_hits;
  } else {
    ++flash_.stats.map_misses;
    if (const auto write_back = cache->add(page.value)) status = write(*write_back, plan);
    read(cache->page_of(page.value), plan);
  }
  if (change) cache->mark_dirty(page.value);
  return status;
}

IoStatus MapPages::access(LogicalPage first, LogicalPage last, bool change, PlanBuilder& plan) {
  if (!entries_.are_cached()) return IoStatus::ok;
  for (LogicalPage page = first; page.value <= last.value; ++page.value) {
    const IoStatus status = access(page, change, plan);
    if (status != IoStatus::ok && change) return status;
  }
  write_stale(plan);
  plan.barrier();
  return IoStatus::ok;
}

void MapPages::read(std::uint64_t index, PlanBuilder& plan) {
  const LogicalPage page = page_of(index);
  const PhysicalPageAddress ppa = map_.lookup(page);
  if (!ppa.valid() || plan.programs(ppa)) return;
  // One that cannot be corrected is rebuilt from the out-of-band data of the pages; the time that takes is not
  // modelled.
  PageOp read;
  reader_.plan(page, ppa, OpClass::map, read);
  plan.read(read);
  plan.touch(flash_.blocks.plane_of(ppa));
  ++flash_.stats.map_pages_read;
}

IoStatus MapPages::write(std::uint64_t index, PlanBuilder& plan) {
  const LogicalPage page = page_of(index);
  const std::optional<PhysicalPageAddress> to = placer_.place(LogicalPage{index}, Stream::map, plan);
  if (!to) return flash_.blocks.read_only() ? IoStatus::read_only : IoStatus::out_of_space;
  read(index, plan);
  if (flash_.store.carried()) flash_.store.write(*to, image(index), host_tag(page));
  entries_.cache()->clean(index);
  flash_.invalidate(map_.bind(page, *to));
  ++flash_.stats.map_pages_written;
  return IoStatus::ok;
}

std::vector<std::byte> MapPages::image(std::uint64_t index) const {
  std::vector<std::byte> image(flash_.page_size.value);
  const std::uint64_t entries = flash_.entries_per_page;
  for (std::uint64_t i = 0; i < entries && index * entries + i < flash_.exported; ++i) {
    const std::uint64_t entry = map_.lookup(LogicalPage{index * entries + i}).value;
    std::memcpy(image.data() + i * kMapEntryBytes, &entry, kMapEntryBytes);
  }
  return image;
}

/// One that was never written is up to date as long as no page of its entries is written.
bool MapPages::is_up_to_date(std::uint64_t index) const {
  const PhysicalPageAddress ppa = map_.lookup(page_of(index));
  if (ppa.valid()) return std::ranges::equal(flash_.store.read(ppa), image(index));
  const LogicalPage first{index * flash_.entries_per_page};
  for (std::uint64_t i = 0; i < flash_.entries_per_page && first.value + i < flash_.exported; ++i)
    if (map_.lookup(LogicalPage{first.value + i}).valid()) return false;
  return true;
}

void MapPages::restore(PlanBuilder& plan) {
  for (std::uint64_t index = 0; index < translation_pages(flash_); ++index) {
    read(index, plan);
    if (!is_up_to_date(index)) entries_.add_stale(index);
  }
  write_stale(plan);
}

void MapPages::write_stale(PlanBuilder& plan) {
  while (entries_.any_stale()) {
    const std::uint64_t index = entries_.take_stale();
    if (write(index, plan) != IoStatus::ok) {
      entries_.add_stale(index);
      return;
    }
  }
}

}  // namespace csdsim::ftl
