// When the blocks of the namespace were written, for refresh by age.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "ftl/block/block_flash.h"

namespace csdsim::ftl {

/// Knows the blocks that have become old. Without refresh_age it notes nothing.
class BlockAges {
 public:
  explicit BlockAges(BlockFlash& flash) : flash_(flash), old_(counts() ? flash.geometry.planes() : 0) {}

  bool counts() const { return flash_.config.refresh_age.ps > 0; }

  /// A page was taken: with the first one of its block the block's age begins.
  void note_taken(PhysicalPageAddress ppa) {
    if (counts() && flash_.geometry.page_in_block(ppa) == 0) note(flash_.blocks.block_of(ppa));
  }
  /// Of blocks that were filled without allocating their pages.
  void note_filled_blocks();
  /// The current time: what is written from now on is written now, and blocks become old.
  void pass(SimTime now);

  /// The block of `plane` that has been old for longest.
  std::optional<BlockId> oldest(PlaneId plane);
  bool is_old(PlaneId plane, BlockId block) const;

 private:
  /// A block whose first page was written at a time, when it had been erased so often.
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
