#include "ftl/block/failed_blocks.h"

#include <utility>
#include <vector>

namespace csdsim::ftl {

void FailedBlocks::empty(PlanBuilder& plan) {
  for (const BlockId block : appender_.take_failed()) {
    if (flash_.blocks.state(block) != BlockState::retired) continue;  // nothing valid is left
    const PlaneId plane = flash_.blocks.plane_of(block);
    collector_.collect(plane, plan);
    // The last free block belongs to collection, as it does when the host writes.
    const std::uint32_t spare = flash_.free_blocks(plane) > 1 ? flash_.geometry.pages_per_block : 0;
    const Stream stream = mover_.stream_for(block);
    if (flash_.blocks.valid_pages(block) > flash_.blocks.open_pages(plane, stream) + spare) {
      appender_.put_back(block);
      continue;
    }
    std::vector<Phase> phases;
    mover_.move_all(block, stream, plan.records() ? &phases : nullptr, flash_.stats.retired_pages_moved);
    if (flash_.blocks.state(block) == BlockState::retired) appender_.put_back(block);
    if (!phases.empty()) plan.collect(plane, std::move(phases));
  }
}

}  // namespace csdsim::ftl
