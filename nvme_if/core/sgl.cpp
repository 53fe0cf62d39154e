#include "nvme_if/core/sgl.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "base/error.h"

namespace csdsim::nvme {

void SglWalker::start(const SglDescriptor& first, Bytes length) {
  state_ = WalkState::done;
  error_ = {};
  segments_.clear();
  remaining_ = length.value;
  left_ = 0;
  descriptors_ = 0;
  if (remaining_ == 0) return;
  if (first.is(SglType::segment) || first.is(SglType::last_segment)) return enter_segment(first);
  if (take_data(first)) finish();
}

bool SglWalker::take_data(const SglDescriptor& d) {
  if (!d.is(SglType::data_block)) return fail(status::sgl_type_invalid), false;
  if (d.subtype() != 0) return fail(status::sgl_subtype_invalid), false;
  if (d.length == 0) return true;
  if (d.address % 4 != 0 || d.length % 4 != 0) return fail(status::sgl_granularity_invalid), false;
  if (d.length > remaining_) return fail(status::sgl_length_invalid), false;
  remaining_ -= d.length;
  if (!segments_.empty() && segments_.back().address.value + segments_.back().length.value == d.address) {
    segments_.back().length.value += d.length;
  } else {
    segments_.push_back({PhysicalAddress{d.address}, Bytes{d.length}});
  }
  return true;
}

void SglWalker::enter_segment(const SglDescriptor& d) {
  if (d.subtype() != 0) return fail(status::sgl_subtype_invalid);
  if (d.length == 0 || d.length % sizeof d != 0 || d.address % 8 != 0) return fail(status::sgl_segment_invalid);
  last_ = d.is(SglType::last_segment);
  at_ = d.address;
  left_ = d.length;
  request_piece();
}

void SglWalker::request_piece() {
  list_ = {PhysicalAddress{at_}, Bytes{std::min(left_, kPiece)}};
  state_ = WalkState::needs_list;
}

void SglWalker::feed(std::span<const std::uint64_t> words) {
  if (state_ != WalkState::needs_list || words.size() * 8 != list_.length.value)
    throw InternalError(fmt::format("SGL piece of {} bytes fed, {} asked for", words.size() * 8, list_.length.value));
  state_ = WalkState::done;
  at_ += list_.length.value;
  left_ -= list_.length.value;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    const auto d = std::bit_cast<SglDescriptor>(std::array{words[i], words[i + 1]});
    if (++descriptors_ > kMostDescriptors) return fail(status::sgl_number_invalid);
    const bool ends = left_ == 0 && i + 2 == words.size();
    if (d.is(SglType::segment) || d.is(SglType::last_segment)) {
      if (last_) return fail(status::sgl_segment_invalid);
      if (!ends) return fail(status::sgl_number_invalid);
      return enter_segment(d);
    }
    if (!take_data(d)) return;
  }
  if (left_ > 0) return request_piece();
  last_ ? finish() : fail(status::sgl_segment_invalid);
}

void SglWalker::finish() {
  if (remaining_ > 0) fail(status::sgl_length_invalid);
}

void SglWalker::fail(Status s) {
  state_ = WalkState::failed;
  error_ = s;
  segments_.clear();
}

namespace {

/// Data blocks of at most 4 GiB less a dword.
std::vector<SglDescriptor> data_blocks(std::span<const Segment> segments) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint32_t>::max() / 4 * 4;
  std::vector<SglDescriptor> blocks;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    auto [address, length] = segments[i];
    if (length.value == 0 || address.value % 4 != 0 || length.value % 4 != 0)
      throw UserError(
          fmt::format("segment {} of the buffer, {} bytes at "
                      "{:#x}, is empty or not in dwords",
                      i, length.value, address.value));
    while (length.value > 0) {
      const std::uint64_t size = std::min(length.value, kMost);
      blocks.push_back(SglDescriptor::of(SglType::data_block, address.value, static_cast<std::uint32_t>(size)));
      address.value += size;
      length.value -= size;
    }
  }
  return blocks;
}

}  // namespace

SglDescriptor build_sgl(std::span<const Segment> segments,
                        const std::function<PhysicalAddress(std::uint32_t)>& list_page,
                        const std::function<void(PhysicalAddress, std::uint64_t)>& write_word) {
  if (segments.empty()) return {};
  const std::vector<SglDescriptor> blocks = data_blocks(segments);
  if (blocks.size() == 1) return blocks.front();
  constexpr std::size_t kPerPage = SglWalker::kPiece / sizeof(SglDescriptor);
  std::uint32_t pages = 0;
  // The segment of the blocks from `first` on.
  const auto describe = [&](std::size_t first, PhysicalAddress at) {
    const std::size_t left = blocks.size() - first;
    const std::size_t descriptors = std::min(left, kPerPage);
    return SglDescriptor::of(left <= kPerPage ? SglType::last_segment : SglType::segment, at.value,
                             static_cast<std::uint32_t>(descriptors * sizeof(SglDescriptor)));
  };
  PhysicalAddress page = list_page(pages++);
  const SglDescriptor first = describe(0, page);
  const auto write = [&](std::size_t slot, const SglDescriptor& d) {
    const auto words = std::bit_cast<std::array<std::uint64_t, 2>>(d);
    for (std::size_t w = 0; w < 2; ++w) write_word(page + Bytes{slot * sizeof d + w * 8}, words[w]);
  };
  for (std::size_t at = 0; at < blocks.size();) {
    const std::size_t left = blocks.size() - at;
    // If blocks remain for a next page, the last descriptor of this page points to it.
    const std::size_t in_page = left <= kPerPage ? left : kPerPage - 1;
    for (std::size_t i = 0; i < in_page; ++i) write(i, blocks[at + i]);
    at += in_page;
    if (at == blocks.size()) break;
    const PhysicalAddress next = list_page(pages++);
    write(in_page, describe(at, next));
    page = next;
  }
  return first;
}

}  // namespace csdsim::nvme
