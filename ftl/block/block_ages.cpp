#include "ftl/block/block_ages.h"

#include <algorithm>

namespace csdsim::ftl {

void BlockAges::note_filled_blocks() {
  if (!counts()) return;
  for (std::uint32_t b = 0; b < flash_.geometry.blocks(); ++b)
    if (const BlockId block{b}; flash_.blocks.written_pages(block) > 0) note(block);
}

void BlockAges::pass(SimTime now) {
  now_ = now;
  for (; !written_.empty() && written_.front().at + flash_.config.refresh_age <= now; written_.pop_front()) {
    const WrittenBlock& oldest = written_.front();
    if (is_old(oldest)) old_[flash_.blocks.plane_of(oldest.block).value].push_back(oldest);
  }
}

/// The block was not erased since then. A block that is being collected or was retired does not count: its pages move
/// anyway.
bool BlockAges::is_old(const WrittenBlock& written) const {
  const BlockState state = flash_.blocks.state(written.block);
  return (state == BlockState::open || state == BlockState::full) &&
         flash_.blocks.erase_count(written.block) == written.erases;
}

std::optional<BlockId> BlockAges::oldest(PlaneId plane) {
  if (old_.empty()) return std::nullopt;
  std::deque<WrittenBlock>& old = old_[plane.value];
  while (!old.empty() && !is_old(old.front())) old.pop_front();
  return old.empty() ? std::nullopt : std::optional(old.front().block);
}

bool BlockAges::is_old(PlaneId plane, BlockId block) const {
  return std::ranges::any_of(old_[plane.value],
                             [&](const WrittenBlock& old) { return old.block == block && is_old(old); });
}

}  // namespace csdsim::ftl
