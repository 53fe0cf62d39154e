// What a drive remembers of its blocks while the power is off.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "ftl/core/block_manager.h"

namespace csdsim::ftl {

std::vector<BlockRecord> BlockManager::records() const {
  std::vector<BlockRecord> records;
  for (std::uint32_t p = 0; p < geometry_.planes(); ++p) {
    const Plane& plane = planes_[p];
    const auto add = [&](std::uint32_t block) {
      const BlockId id = block_id(PlaneId{p}, block);
      const Block& b = blocks_[id.value];
      records.push_back({id, b.erases, b.written, b.state, b.ns});
    };
    for (const std::uint32_t block : plane.recycled) add(block);
    for (std::uint32_t block = 0; block < plane.fresh; ++block) {
      const Block& b = blocks_[block_id(PlaneId{p}, block).value];
      const bool from_the_factory = b.state == BlockState::bad && b.written == 0;
      if (b.state != BlockState::free && !from_the_factory) add(block);
    }
  }
  return records;
}

void BlockManager::restore(const BlockRecord& record, std::span<const PhysicalPageAddress> valid) {
  const BlockId id = record.block;
  Block& b = blocks_[id.value];
  if (b.state != BlockState::free || b.written > 0 || b.erases > 0)
    throw InternalError(fmt::format("block {} is restored but in use", id.value));
  Plane& p = planes_[plane_of(id).value];
  const std::uint32_t in_plane = id.value % geometry_.blocks_per_plane;
  p.fresh = std::max(p.fresh, in_plane + 1);
  ++p.opened;
  p.most_erases = std::max(p.most_erases, record.erases);
  b.erases = record.erases;
  b.ns = record.ns;
  if (record.state == BlockState::free) {
    p.recycled.push_back(in_plane);
    return;
  }
  b.written = record.written;
  b.valid = static_cast<std::uint32_t>(valid.size());
  clock_ += b.written;
  for (const PhysicalPageAddress ppa : valid) mark_valid(ppa, 1);
  valid_pages_[index(b.ns)] += b.valid;
  available_pages_[index(b.ns)] -= geometry_.pages_per_block;
  ++p.used[index(b.ns)];
  if (record.state == BlockState::bad || record.state == BlockState::retired) {
    b.state = b.valid == 0 ? BlockState::bad : BlockState::retired;
    leave_service(id);
    return;
  }
  b.state = BlockState::full;
  victims_.add(group(plane_of(id), b.ns), id, b.valid, clock_);
}

}  // namespace csdsim::ftl
