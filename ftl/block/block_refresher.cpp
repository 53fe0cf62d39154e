#include "ftl/block/block_refresher.h"

#include <optional>

namespace csdsim::ftl {

std::vector<Phase> BlockRefresher::step(PlaneId plane) {
  std::vector<Phase> phases;
  const std::optional<BlockId> old = ages_.oldest(plane);
  if (!old) return phases;
  if (!victims_.has(plane) || collector_.finish_victim(plane, &phases)) refresh(*old, phases);
  return phases;
}

/// Does nothing if its valid pages find no room. An open block is closed first; if a word line of it is not complete,
/// it is refreshed later. If the open block that the pages would go to is old itself, it is closed as well.
void BlockRefresher::refresh(BlockId block, std::vector<Phase>& phases) {
  BlockManager& blocks = flash_.blocks;
  const PlaneId plane = blocks.plane_of(block);
  const Stream stream = mover_.stream_for(block);
  const auto can_close = [&](BlockId open) {
    return blocks.state(open) == BlockState::open && blocks.written_pages(open) % flash_.config.units_per_program == 0;
  };
  const std::optional<BlockId> target = blocks.open_block(plane, stream);
  const bool closes_target = target && can_close(*target) && ages_.is_old(plane, *target);
  if (blocks.state(block) == BlockState::open && !can_close(block)) return;
  const std::uint32_t spare = flash_.free_blocks(plane) > 0 ? flash_.geometry.pages_per_block : 0;
  const std::uint32_t room = (closes_target ? 0 : blocks.open_pages(plane, stream)) + spare;
  if (blocks.valid_pages(block) > room) return;
  if (closes_target) blocks.close(*target);
  if (blocks.state(block) == BlockState::open) blocks.close(block);
  blocks.begin_collect(block);
  if (!mover_.move_all(block, stream, &phases, flash_.stats.refresh_pages_moved)) {
    victims_.choose(block);  // programs failed: what is left of it is collected
    return;
  }
  mover_.erase(block, &phases);
  ++flash_.stats.refreshed_blocks;
}

}  // namespace csdsim::ftl
