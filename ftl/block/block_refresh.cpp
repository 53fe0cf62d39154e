// Refresh by age of the block namespace.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "ftl/block/block_ftl.h"

namespace csdsim::ftl {

/// Of blocks that were filled without allocating their pages.
void BlockFtl::note_filled_blocks() {
  for (std::uint32_t b = 0; b < geometry_.blocks(); ++b)
    if (const BlockId block{b}; blocks_.written_pages(block) > 0) note_written(block);
}

void BlockFtl::pass(SimTime now) {
  now_ = now;
  for (; !written_.empty() && written_.front().at + config_.refresh_age <= now; written_.pop_front()) {
    const WrittenBlock& oldest = written_.front();
    if (is_old(oldest)) old_[blocks_.plane_of(oldest.block).value].push_back(oldest);
  }
}

/// It still holds what was written then. What is being collected is erased soon, and what was retired is emptied.
bool BlockFtl::is_old(const WrittenBlock& written) const {
  const BlockState state = blocks_.state(written.block);
  return (state == BlockState::open || state == BlockState::full) &&
         blocks_.erase_count(written.block) == written.erases;
}

std::optional<IoPlan> BlockFtl::refresh_step(PlaneId plane) {
  if (old_.empty() || read_only()) return std::nullopt;
  std::deque<WrittenBlock>& old = old_[plane.value];
  while (!old.empty() && !is_old(old.front())) old.pop_front();
  if (old.empty()) return std::nullopt;
  IoPlan plan;
  if (collecting(plane) == kNone || finish_victim(plane, &plan.phases)) refresh(old.front().block, plan.phases);
  if (!is_old(old.front())) old.pop_front();
  return follow_up(std::move(plan));
}

/// Nothing happens where there is no room for its valid pages. A block that is still open is closed, unless units of a
/// word line of it are still to come; so is the open block that the pages would go to, if it is old itself.
void BlockFtl::refresh(BlockId block, std::vector<Phase>& phases) {
  const PlaneId plane = blocks_.plane_of(block);
  const Stream stream = stream_for(block);
  const auto can_close = [&](BlockId open) {
    return blocks_.state(open) == BlockState::open && blocks_.written_pages(open) % config_.units_per_program == 0;
  };
  const std::optional<BlockId> target = blocks_.open_block(plane, stream);
  const bool closes_target =
      target && can_close(*target) &&
      std::ranges::any_of(old_[plane.value], [&](const auto& old) { return old.block == *target && is_old(old); });
  if (blocks_.state(block) == BlockState::open && !can_close(block)) return;
  const std::uint32_t spare = blocks_.available_blocks(plane, Namespace::block) > 0 ? geometry_.pages_per_block : 0;
  const std::uint32_t room = (closes_target ? 0 : blocks_.open_pages(plane, stream)) + spare;
  if (blocks_.valid_pages(block) > room) return;
  if (closes_target) blocks_.close(*target);
  if (blocks_.state(block) == BlockState::open) blocks_.close(block);
  blocks_.begin_collect(block);
  if (!move_pages(block, stream, geometry_.pages_per_block, &phases, stats_.refresh_pages_moved)) {
    collecting(plane) = block.value;  // programs failed: what is left of it is collected
    return;
  }
  erase(block, &phases);
  ++stats_.refreshed_blocks;
}

}  // namespace csdsim::ftl
