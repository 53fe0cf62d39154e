#include "nvme_if/core/prp.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace csdsim::nvme {

void PrpWalker::walk(std::uint64_t prp1, std::uint64_t prp2, Bytes length, Bytes page_size) {
  segments_.clear();
  page_size_ = page_size.value;
  remaining_ = length.value;
  chained_ = false;
  if (remaining_ == 0) return;
  if (prp1 == 0) return fail(status::invalid_field);
  if (prp1 % 4 != 0) return fail(status::prp_offset_invalid);
  append(prp1, std::min(remaining_, page_size_ - prp1 % page_size_));
  if (remaining_ == 0) return;
  if (prp2 == 0) return fail(status::invalid_field);
  if (remaining_ <= page_size_) {
    if (prp2 % page_size_ != 0) return fail(status::prp_offset_invalid);
    return append(prp2, remaining_);
  }
  if (prp2 % 8 != 0) return fail(status::prp_offset_invalid);
  request_list(prp2);
}

void PrpWalker::request_list(std::uint64_t pointer) {
  const std::uint64_t needed = (remaining_ + page_size_ - 1) / page_size_;
  const std::uint64_t room = (page_size_ - pointer % page_size_) / 8;
  chained_ = needed > room;
  list_ = {PhysicalAddress{pointer}, Bytes{std::min(needed, room) * 8}};
  state_ = WalkState::needs_list;
}

void PrpWalker::feed(std::span<const std::uint64_t> entries) {
  if (state_ != WalkState::needs_list || entries.size() * 8 != list_.length.value)
    throw InternalError(
        fmt::format("PRP list of {} entries fed, {} bytes asked for", entries.size(), list_.length.value));
  state_ = WalkState::done;
  const std::size_t pages = entries.size() - (chained_ ? 1 : 0);
  const std::uint64_t page = page_size_;
  // Pages that are contiguous in memory become one segment.
  Segment piece;
  for (const std::uint64_t entry : entries.first(pages)) {
    if (entry == 0) return fail(status::invalid_field);
    if ((entry & (page - 1)) != 0) return fail(status::prp_offset_invalid);
    if (entry != piece.address.value + piece.length.value) {
      if (piece.length.value > 0) append(piece.address.value, piece.length.value);
      piece = {PhysicalAddress{entry}, Bytes{}};
    }
    piece.length.value += page;
  }
  if (pages > 0) append(piece.address.value, std::min(remaining_, piece.length.value));
  if (!chained_) return;
  const std::uint64_t next = entries.back();
  if (next == 0) return fail(status::invalid_field);
  if (next % page_size_ != 0) return fail(status::prp_offset_invalid);
  request_list(next);
}

void PrpWalker::append(std::uint64_t address, std::uint64_t length) {
  remaining_ -= length;
  if (!segments_.empty()) {
    Segment& last = segments_.back();
    if (last.address.value + last.length.value == address) {
      last.length.value += length;
      return;
    }
  }
  segments_.push_back({PhysicalAddress{address}, Bytes{length}});
}

void PrpWalker::fail(Status s) {
  state_ = WalkState::failed;
  error_ = s;
  one_page_ = false;
  segments_.clear();
}

namespace {

void check_segments(std::span<const Segment> segments, std::uint64_t page_size) {
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::uint64_t begin = segments[i].address.value;
    const std::uint64_t end = begin + segments[i].length.value;
    if (segments[i].length.value == 0 || end < begin)
      throw UserError(fmt::format("segment {} of the buffer is empty or wraps around", i));
    if (i == 0 ? begin % 4 != 0 : begin % page_size != 0)
      throw UserError(fmt::format("segment {} of the buffer starts at {:#x}, must start on a {}", i, begin,
                                  i == 0 ? "dword" : "memory page"));
    if (i + 1 < segments.size() && end % page_size != 0)
      throw UserError(
          fmt::format("segment {} of the buffer ends at {:#x}, only the last may end inside a page", i, end));
  }
}

}  // namespace

DataPointerField build_prps(std::span<const Segment> segments, Bytes page_size,
                            const std::function<PhysicalAddress(std::uint32_t)>& list_page,
                            const std::function<void(PhysicalAddress, std::uint64_t)>& write_entry) {
  if (segments.empty()) return {};
  const std::uint64_t page = page_size.value;
  check_segments(segments, page);

  // Entries after PRP1: the pages of all segments, in order.
  std::uint64_t entries = 0;
  for (const Segment& s : segments) entries += (s.address.value % page + s.length.value + page - 1) / page;
  --entries;

  DataPointerField prps{.prp1 = segments.front().address.value, .prp2 = 0};
  if (entries == 0) return prps;
  const bool direct = entries == 1;
  const std::uint64_t per_list = page / 8;
  std::uint32_t list_index = 0;
  std::uint64_t slot = 0;
  PhysicalAddress list;
  if (!direct) {
    list = list_page(list_index);
    prps.prp2 = list.value;
  }
  bool first = true;
  for (const Segment& s : segments) {
    const std::uint64_t end = s.address.value + s.length.value;
    for (std::uint64_t at = s.address.value - s.address.value % page; at < end; at += page) {
      if (std::exchange(first, false)) continue;
      if (direct) {
        prps.prp2 = at;
        return prps;
      }
      if (slot == per_list - 1 && entries > 1) {
        const PhysicalAddress next = list_page(++list_index);
        write_entry(list + Bytes{slot * 8}, next.value);
        list = next;
        slot = 0;
      }
      write_entry(list + Bytes{slot * 8}, at);
      ++slot;
      --entries;
    }
  }
  return prps;
}

}  // namespace csdsim::nvme
