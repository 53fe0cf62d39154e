// The ages of the namespace's blocks, for refresh.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ftl/block/block_flash.h"

namespace csdsim::ftl {

/// Knows the blocks whose first page is older than refresh_age. Without refresh_age it records nothing.
class BlockAges {
 public:
  explicit BlockAges(BlockFlash& flash) : flash_(flash), old_(counts() ? flash.geometry.planes() : 0) {}

  bool counts() const { return flash_.config.refresh_age.ps > 0; }

  /// Call it for each page that is taken. The age of a block counts from its first page.
  void note_taken(PhysicalPageAddress ppa) {
    if (counts() && flash_.geometry.page_in_block(ppa) == 0) note(flash_.blocks.block_of(ppa));
  }
  /// Call it when blocks were filled without allocating their pages (preconditioning).
  void note_filled_blocks();
  /// Sets the current time, which later pages get, and finds the blocks that are old by then.
  void pass(SimTime now);

  /// The block of `plane` that became old first.
  std::optional<BlockId> oldest(PlaneId plane);
  bool is_old(PlaneId plane, BlockId block) const;

 private:
  /// A block whose first page was written at `at`; `erases` tells whether it has been erased since.
  struct WrittenBlock {
    BlockId block;
    std::uint32_t erases = 0;
    SimTime at;
  };

  void note(BlockId block) { written_.push_back({block, flash_.blocks.erase_count(block), now_}); }
  bool is_old(const WrittenBlock& block) const;

  BlockFlash& flash_;
  SimTime now_{};
  std::deque<WrittenBlock> written_;           ///< oldest first
  std::vector<std::deque<WrittenBlock>> old_;  ///< by plane: what has become old
};

}  // namespace csdsim::ftl
