// State that all parts of the block namespace share: the flash, the configuration and the counters.
#pragma once

#include <algorithm>
#include <cstdint>

#include "contracts/page_op.h"
#include "ftl/block/block_ftl_stats.h"
#include "ftl/block/block_types.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"
#include "ftl/core/media_faults.h"

namespace csdsim::ftl {

struct BlockFlash {
  /// UserError for a bad configuration, and for flash that is too small.
  BlockFlash(const BlockFtlConfig& config, BlockManager& blocks, BackingStore& store, MediaFaults* faults,
             BlockFtlStats& counters);

  std::uint32_t page_bytes() const { return static_cast<std::uint32_t>(page_size.value); }
  PageOp op(PhysicalPageAddress ppa, PageOpKind kind, OpClass op_class) const {
    return {
        .ppa = ppa, .kind = kind, .op_class = op_class, .channel_bytes = kind == PageOpKind::erase ? 0 : page_bytes()};
  }

  std::uint32_t free_blocks(PlaneId plane) const { return blocks.available_blocks(plane, Namespace::block); }
  /// Pages left in the open blocks of the host and of collection. Of several handles that have an open block those with
  /// the fewest count: so many pages can be written for certain before one of them needs the next.
  std::uint32_t open_pages(PlaneId plane) const {
    std::uint32_t host = blocks.open_pages(plane, Stream::host), moved = blocks.open_pages(plane, Stream::gc);
    for (std::uint32_t handle = 1; handle < config.handles; ++handle) {
      host = fewer(host, blocks.open_pages(plane, host_stream(PlacementHandle{handle})));
      if (config.isolation == Isolation::persistently)
        moved = fewer(moved, blocks.open_pages(plane, gc_stream(PlacementHandle{handle})));
    }
    return host + moved;
  }
  /// Whether the valid pages of a block find room in `stream`. A free block counts even if it is the last one, which
  /// only collection may open.
  bool fits(BlockId block, Stream stream) const {
    const PlaneId plane = blocks.plane_of(block);
    const std::uint32_t spare = free_blocks(plane) > 0 ? geometry.pages_per_block : 0;
    return blocks.valid_pages(block) <= blocks.open_pages(plane, stream) + spare;
  }
  /// Whether pages have nothing but a place: no bytes, no failures, no cached map entries, no age. Runs of them can
  /// then be written and moved together.
  bool only_places() const {
    return !store.carried() && faults == nullptr && !config.map_cache_entries && config.refresh_age.ps == 0;
  }
  void invalidate(PhysicalPageAddress old) {
    if (old.valid()) blocks.invalidate(old);
  }

  /// The smaller one, but for 0: no open block.
  static std::uint32_t fewer(std::uint32_t a, std::uint32_t b) {
    return a == 0 || b == 0 ? std::max(a, b) : std::min(a, b);
  }

  const BlockFtlConfig config;
  BlockManager& blocks;
  BackingStore& store;
  MediaFaults* const faults;  ///< null: nothing fails
  const FlashGeometry geometry;
  const Bytes page_size;
  const Bytes codeword;                  ///< the page, where pages have no codewords
  const std::uint64_t entries_per_page;  ///< map entries of a translation page
  const std::uint64_t exported;          ///< logical pages of the host; translation pages follow them
  BlockFtlStats& stats;
};

/// Translation pages of a namespace whose map is cached; otherwise 0.
inline std::uint64_t translation_pages(const BlockFlash& flash) {
  if (!flash.config.map_cache_entries) return 0;
  return (flash.exported + flash.entries_per_page - 1) / flash.entries_per_page;
}

}  // namespace csdsim::ftl
