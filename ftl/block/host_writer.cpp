#include "ftl/block/host_writer.h"

#include <algorithm>
#include <array>
#include <optional>

namespace csdsim::ftl {

/// Plans the read of the bytes that a write of `count` bytes from byte `first` on leaves in a page. False: they cannot
/// be corrected.
bool HostWriter::read_rest(LogicalPage page, PhysicalPageAddress ppa, std::uint64_t first, std::uint64_t count,
                           PageOp& read) {
  const bool corrected = reader_.plan(page, ppa, OpClass::host, read);
  read.channel_bytes = reader_.kept_bytes(first, count);
  ++flash_.stats.merge_reads;
  return corrected;
}

KeptPages HostWriter::keep(Bytes offset, Bytes length) {
  KeptPages kept;
  const std::uint64_t size = flash_.page_size.value, end = offset.value + length.value;
  const auto keep_page = [&](LogicalPage page) {
    const std::uint64_t at = page.value * size;
    const std::uint64_t first = std::max(at, offset.value) - at, count = std::min(at + size, end) - at - first;
    const PhysicalPageAddress ppa = map_.lookup(page);
    if (count == size || !ppa.valid() || is_held(ppa)) return;
    const bool corrected = read_rest(page, ppa, first, count, kept.reads.emplace_back());
    kept.pages.push_back({page, ppa, corrected});
  };
  const LogicalPage first{by_page_.quotient(offset.value)}, last{by_page_.quotient(end - 1)};
  keep_page(first);
  if (last != first) keep_page(last);
  return kept;
}

/// Plans that read, unless `kept` has it, and merges the bytes in carried runs. False: they cannot be corrected.
bool HostWriter::merge(LogicalPage page, std::uint64_t first, std::uint64_t count, std::span<const std::byte> data,
                       const KeptPages* kept, PlanBuilder& plan) {
  const PhysicalPageAddress old = map_.lookup(page);
  const KeptPages::Page* known = nullptr;
  if (kept != nullptr)
    for (const KeptPages::Page& read : kept->pages)
      if (read.page == page && read.ppa == old) known = &read;
  if (known != nullptr) {
    if (!known->corrected) return false;
  } else if (old.valid()) {
    PageOp read;
    const bool corrected = read_rest(page, old, first, count, read);
    plan.read(read);
    plan.touch(flash_.blocks.plane_of(old));
    if (!corrected) return false;
  }
  if (!flash_.store.carried()) return true;
  if (old.valid()) {
    std::ranges::copy(flash_.store.read_verified(old, host_tag(page), flash_.config.check), image_.begin());
  } else {
    std::ranges::fill(image_, std::byte{0});
  }
  std::ranges::copy(data, image_.begin() + static_cast<std::ptrdiff_t>(first));
  return true;
}

/// Writes into a page whose program has not begun: it keeps its place in flash.
void HostWriter::change_held_page(LogicalPage page, std::uint64_t first, std::span<const std::byte> data) {
  ++flash_.stats.coalesced_pages;
  if (!flash_.store.carried()) return;
  const PhysicalPageAddress ppa = map_.lookup(page);
  std::ranges::copy(flash_.store.read_verified(ppa, host_tag(page), flash_.config.check), image_.begin());
  std::ranges::copy(data, image_.begin() + static_cast<std::ptrdiff_t>(first));
  flash_.store.replace(ppa, image_, host_tag(page));
}

IoStatus HostWriter::write_page(LogicalPage page, std::uint64_t first, std::uint64_t count,
                                std::span<const std::byte> bytes, const KeptPages* kept, PlacementHandle handle,
                                PlanBuilder& plan) {
  if (held_ && is_held(map_.lookup(page))) {
    change_held_page(page, first, bytes);
    flash_.stats.host_bytes_written += count;
    return IoStatus::ok;
  }
  const std::optional<PhysicalPageAddress> to = placer_.place(page, host_stream(handle), plan);
  if (!to) return flash_.blocks.read_only() ? IoStatus::read_only : IoStatus::out_of_space;
  if (count != flash_.page_size.value) {
    if (!merge(page, first, count, bytes, kept, plan)) {
      flash_.blocks.invalidate(*to);
      ++flash_.stats.abandoned_pages;
      return IoStatus::uncorrectable;
    }
    if (flash_.store.carried()) bytes = image_;
  }
  flash_.store.write(*to, bytes, host_tag(page));
  const PhysicalPageAddress old = map_.bind(page, *to);
  flash_.invalidate(old);
  lines_.note_replaced(*to, old);
  if (replaced_ && plan.records() && old.valid()) replaced_(*to, old);
  reader_.forget(page);
  ++flash_.stats.host_pages_written;
  flash_.stats.host_bytes_written += count;
  if (appender_.any_failed()) failed_.empty(plan);
  return IoStatus::ok;
}

IoStatus HostWriter::write(Bytes offset, Bytes length, std::span<const std::byte> data, const KeptPages* kept,
                           PlacementHandle handle, PlanBuilder& plan) {
  IoStatus status = IoStatus::ok;
  const std::uint64_t size = flash_.page_size.value;
  const bool runs = writes_runs();
  LogicalPage page{by_page_.quotient(offset.value)};
  std::uint64_t in_page = offset.value - page.value * size;
  for (std::uint64_t done = 0; done < length.value && status == IoStatus::ok; in_page = 0) {
    const std::uint64_t left = length.value - done;
    if (const std::uint32_t written = runs && in_page == 0 && left >= size
                                          ? write_run(page, static_cast<std::uint32_t>(left / size), handle, plan)
                                          : 0) {
      done += written * size;
      page.value += written;
      continue;
    }
    const std::uint64_t count = std::min(size - in_page, left);
    const auto bytes = flash_.store.carried() ? data.subspan(done, count) : data;
    status = write_page(page, in_page, count, bytes, kept, handle, plan);
    done += count;
    ++page.value;
  }
  return status;
}

/// Writes up to `most` whole pages as write_page() does one by one, where that takes no decision. Returns their number.
std::uint32_t HostWriter::write_run(LogicalPage page, std::uint32_t most, PlacementHandle handle, PlanBuilder& plan) {
  const BlockManager::PageRun to = placer_.place_run(page, host_stream(handle), most, plan);
  bind_run(page, to);
  return to.count;
}

BlockManager::PageRun HostWriter::join_line(Bytes offset, Bytes length, std::uint32_t most, PlacementHandle handle,
                                            const PlaneLoad* load) {
  const LogicalPage page{by_page_.quotient(offset.value)};
  const std::uint64_t count = by_page_.quotient(length.value), size = flash_.page_size.value;
  if (!writes_runs() || page.value * size != offset.value || count * size != length.value) return {};
  const BlockManager::PageRun to =
      placer_.place_in_line(page, host_stream(handle), static_cast<std::uint32_t>(count), most, load);
  bind_run(page, to);
  return to;
}

HostWriter::Moved HostWriter::write_alone(Bytes offset, Bytes length, PlacementHandle handle, const PlaneLoad* load) {
  const LogicalPage page{by_page_.quotient(offset.value)};
  if (length != flash_.page_size || flash_.page_size * page.value != offset) return {};
  if (held_ || !flash_.only_places()) return {};
  Moved moved{placer_.place_alone(page, host_stream(handle), load)};
  if (!moved.to.valid()) return moved;
  moved.old = map_.lookup_run(page, 1).first;
  map_.rebind(page, moved.to);
  if (moved.old.valid()) flash_.blocks.invalidate_run(moved.old, 1);
  ++flash_.stats.host_pages_written;
  flash_.stats.host_bytes_written += length.value;
  return moved;
}

/// Maps pages from `page` on to these places, which were handed out last, and marks their older versions.
void HostWriter::bind_run(LogicalPage page, BlockManager::PageRun to) {
  for (std::uint32_t left = to.count; left > 0;) {
    PageMap::Run old = map_.lookup_run(LogicalPage{page.value + (to.count - left)}, left);
    left -= old.count;
    while (old.first.valid() && old.count > 0) {
      const std::uint32_t count = std::min(old.count, flash_.blocks.pages_behind(old.first));
      old.count -= count;
      flash_.blocks.invalidate_run(old.first, count, left + old.count);
      old.first.value += count;
    }
  }
  map_.rebind_run(page, to.first, to.count);
  flash_.stats.host_pages_written += to.count;
  flash_.stats.host_bytes_written += to.count * flash_.page_size.value;
}

void HostWriter::prefetch(Bytes offset, Bytes length) {
  LogicalPage page{by_page_.quotient(offset.value)};
  if (length.value == 0) return map_.prefetch(page);
  const std::uint64_t end = by_page_.quotient(offset.value + length.value - 1) + 1;
  std::array<PhysicalPageAddress, 16> places;
  while (page.value < end) {
    std::size_t count = 0;
    while (count < places.size() && page.value < end) {
      const PageMap::Run old = map_.lookup_run(page, static_cast<std::uint32_t>(end - page.value));
      if (old.first.valid()) places[count++] = old.first;
      page.value += old.count;
    }
    flash_.blocks.prefetch({places.data(), count});
  }
}

void HostWriter::trim(LogicalPage page) {
  if (!map_.lookup(page).valid()) return;
  flash_.invalidate(map_.unbind(page));
  reader_.forget(page);
  trims_.note(page);
  ++flash_.stats.trimmed_pages;
}

}  // namespace csdsim::ftl
