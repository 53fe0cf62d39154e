#include "ftl/kv/append_points.h"

namespace csdsim::ftl {

PhysicalPageAddress AppendPoints::take(PlaneId plane, AppendPoint point) {
  if (point == kSharedPoint) return blocks_.take_page(plane, Stream::kv);
  if (point == kMovedPoint) return blocks_.take_page(plane, moved_);
  auto it = open_.find({point, plane});
  if (it == open_.end()) {
    const auto block = blocks_.open(plane);
    if (!block) return PhysicalPageAddress::invalid();
    it = open_.emplace(Key{point, plane}, *block).first;
  }
  const PhysicalPageAddress ppa = blocks_.next_page(it->second);
  if (blocks_.state(it->second) != BlockState::open) open_.erase(it);
  return ppa;
}

PhysicalPageAddress AppendPoints::take_from_any() {
  for (std::uint32_t p = 0; p < blocks_.geometry().planes(); ++p)
    for (const Stream stream : {Stream::kv_gc, Stream::kv_cold})
      if (blocks_.open_pages(PlaneId{p}, stream) > 0) return blocks_.take_page(PlaneId{p}, stream);
  for (auto it = open_.begin(); it != open_.end(); ++it) {
    const PhysicalPageAddress ppa = blocks_.next_page(it->second);
    if (blocks_.state(it->second) != BlockState::open) open_.erase(it);
    return ppa;
  }
  return PhysicalPageAddress::invalid();
}

std::vector<BlockId> AppendPoints::close(AppendPoint point) {
  std::vector<BlockId> closed;
  if (point == kSharedPoint || point == kMovedPoint) return closed;
  const auto first = open_.lower_bound({point, PlaneId{0}});
  auto last = first;
  for (; last != open_.end() && last->first.point == point; ++last) {
    blocks_.close(last->second);
    closed.push_back(last->second);
  }
  open_.erase(first, last);
  return closed;
}

void AppendPoints::forget(BlockId block) {
  std::erase_if(open_, [&](const auto& open) { return open.second == block; });
}

std::uint64_t AppendPoints::open_pages(PlaneId plane) const {
  std::uint64_t pages = blocks_.open_pages(plane, Stream::kv) + blocks_.open_pages(plane, Stream::kv_gc) +
                        blocks_.open_pages(plane, Stream::kv_cold);
  for (const auto& [key, block] : open_) {
    if (key.plane == plane) pages += blocks_.geometry().pages_per_block - blocks_.written_pages(block);
  }
  return pages;
}

std::vector<BlockId> AppendPoints::own_blocks() const {
  std::vector<BlockId> blocks;
  for (const auto& [key, block] : open_) blocks.push_back(block);
  return blocks;
}

}  // namespace csdsim::ftl
