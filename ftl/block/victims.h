// The block of each plane that is being collected.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ftl/core/block_manager.h"

namespace csdsim::ftl {

/// The victim of a plane. A write adds `moves` to `debt` and moves a page per `gain`: `gain` writes move all of them.
struct Collection {
  std::optional<BlockId> victim;
  std::uint32_t moves = 0;  ///< valid pages of the victim when it was chosen
  std::uint32_t gain = 0;   ///< its other pages; at least one
  std::uint64_t debt = 0;
  std::uint32_t next = 0;  ///< the victim's pages before it are not valid
};

class Victims {
 public:
  explicit Victims(const BlockManager& blocks) : blocks_(blocks), collections_(blocks.geometry().planes()) {}

  /// Makes `block` the victim of its plane. Writes share the work of moving the pages that are valid now.
  void choose(BlockId block) {
    const std::uint32_t moves = blocks_.valid_pages(block);
    of(blocks_.plane_of(block)) = {
        .victim = block, .moves = moves, .gain = std::max(1u, blocks_.geometry().pages_per_block - moves)};
  }
  Collection& of(PlaneId plane) { return collections_[plane.value]; }
  const Collection& of(PlaneId plane) const { return collections_[plane.value]; }
  bool has(PlaneId plane) const { return of(plane).victim.has_value(); }

 private:
  const BlockManager& blocks_;
  std::vector<Collection> collections_;  ///< by plane
};

}  // namespace csdsim::ftl
