#include "ftl/core/block_manager.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {

BlockManager::BlockManager(const FlashGeometry& geometry, const BlockQuota& quota) : geometry_(geometry) {
  if (geometry.blocks() > std::numeric_limits<std::uint32_t>::max()) {
    throw UserError(fmt::format("the flash has {} erase blocks, more than {}", geometry.blocks(),
                                std::numeric_limits<std::uint32_t>::max()));
  }
  if (std::uint64_t{quota.block_namespace} + quota.kv_namespace > geometry.blocks_per_plane) {
    throw UserError(fmt::format("the namespaces want {} + {} blocks a plane, the flash has {}", quota.block_namespace,
                                quota.kv_namespace, geometry.blocks_per_plane));
  }
  quota_ = {quota.block_namespace, quota.kv_namespace};
  for (std::size_t ns = 0; ns < kNamespaces; ++ns) {
    available_pages_[ns] = std::uint64_t{geometry.planes()} * quota_[ns] * geometry.pages_per_block;
  }
  blocks_.resize(geometry.blocks());
  planes_.resize(geometry.planes());
}

std::uint32_t BlockManager::available_blocks(PlaneId plane, Namespace ns) const {
  return quota_[index(ns)] - planes_[plane.value].used[index(ns)];
}

std::uint32_t BlockManager::open_pages(PlaneId plane, Stream stream) const {
  const std::uint32_t open = planes_[plane.value].open[index(stream)];
  return open == kNone ? 0 : geometry_.pages_per_block - blocks_[block_id(plane, open).value].written;
}

std::uint32_t BlockManager::open_block(PlaneId plane, Stream stream) {
  Plane& p = planes_[plane.value];
  std::uint32_t& open = p.open[index(stream)];
  if (open != kNone) return open;
  const Namespace ns = namespace_of(stream);
  if (available_blocks(plane, ns) == 0) return kNone;
  // Quotas sum up to at most the plane, so a namespace below its quota always finds a block.
  if (p.fresh < geometry_.blocks_per_plane) {
    open = p.fresh++;
  } else {
    open = p.recycled.front();
    p.recycled.pop_front();
  }
  ++p.used[index(ns)];
  Block& b = blocks_[block_id(plane, open).value];
  b.state = BlockState::open;
  b.ns = ns;
  return open;
}

std::optional<PhysicalPageAddress> BlockManager::allocate(PlaneId plane, Stream stream) {
  const std::uint32_t block = open_block(plane, stream);
  if (block == kNone) return std::nullopt;
  Block& b = blocks_[block_id(plane, block).value];
  const PhysicalPageAddress ppa = geometry_.address(plane, block, b.written);
  ++b.written;
  ++b.valid;
  if (b.written == geometry_.pages_per_block) {
    b.state = BlockState::full;
    planes_[plane.value].open[index(stream)] = kNone;
  }
  --available_pages_[index(b.ns)];
  return ppa;
}

void BlockManager::fill(PlaneId plane, Stream stream, std::uint64_t pages) {
  while (pages > 0) {
    const std::uint32_t block = open_block(plane, stream);
    if (block == kNone) throw InternalError(fmt::format("plane {} cannot hold {} more pages", plane.value, pages));
    Block& b = blocks_[block_id(plane, block).value];
    const auto take = static_cast<std::uint32_t>(std::min<std::uint64_t>(pages, geometry_.pages_per_block - b.written));
    b.written += take;
    b.valid += take;
    if (b.written == geometry_.pages_per_block) {
      b.state = BlockState::full;
      planes_[plane.value].open[index(stream)] = kNone;
    }
    available_pages_[index(b.ns)] -= take;
    pages -= take;
  }
}

bool BlockManager::invalidate(PhysicalPageAddress ppa) {
  if (!geometry_.contains(ppa)) throw InternalError(fmt::format("physical page {} does not exist", ppa.value));
  Block& b = blocks_[geometry_.block_of(ppa).value];
  if (b.valid == 0) throw InternalError(fmt::format("physical page {} is invalidated twice", ppa.value));
  --b.valid;
  return b.valid == 0 && b.state == BlockState::full;
}

void BlockManager::begin_erase(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.state != BlockState::full || b.valid != 0) {
    throw InternalError(fmt::format("block {} is to be erased with {} valid pages", block.value, b.valid));
  }
  b.state = BlockState::erasing;
  erasing_pages_[index(b.ns)] += geometry_.pages_per_block;
}

void BlockManager::finish_erase(BlockId block) {
  Block& b = blocks_[block.value];
  if (b.state != BlockState::erasing) {
    throw InternalError(fmt::format("block {} finished an erase that it had not begun", block.value));
  }
  Plane& p = planes_[plane_of(block).value];
  p.recycled.push_back(block.value % geometry_.blocks_per_plane);
  --p.used[index(b.ns)];
  erasing_pages_[index(b.ns)] -= geometry_.pages_per_block;
  available_pages_[index(b.ns)] += geometry_.pages_per_block;
  b.state = BlockState::free;
  b.written = 0;
  ++b.erases;
}

std::optional<BlockId> BlockManager::victim(PlaneId plane, Namespace ns) const {
  std::optional<BlockId> best;
  std::uint32_t fewest = geometry_.pages_per_block;
  const std::uint32_t opened = planes_[plane.value].fresh;
  for (std::uint32_t i = 0; i < opened; ++i) {
    const Block& b = blocks_[block_id(plane, i).value];
    if (b.state == BlockState::full && b.ns == ns && b.valid < fewest) {
      fewest = b.valid;
      best = block_id(plane, i);
    }
  }
  return best;
}

}  // namespace csdsim::ftl
