#include "ftl/kv/reclaim_queue.h"

#include <algorithm>
#include <optional>

namespace csdsim::ftl {

void ReclaimQueue::note_taken(PhysicalPageAddress ppa) {
  if (flash_.config.refresh_age.ps == 0 || flash_.geometry.page_in_block(ppa) != 0) return;
  const BlockId block = flash_.blocks.block_of(ppa);
  written_.push_back({block, flash_.blocks.erase_count(block), now_});
}

void ReclaimQueue::pass(SimTime now) {
  now_ = now;
  for (; !written_.empty() && written_.front().at + flash_.config.refresh_age <= now; written_.pop_front()) {
    const WrittenBlock& oldest = written_.front();
    if (flash_.blocks.erase_count(oldest.block) == oldest.erases) choose(oldest.block, Reason::age);
  }
}

void ReclaimQueue::choose_worn_blocks() {
  const std::uint32_t spread = flash_.config.wear_spread;
  if (spread == 0) return;
  most_erases_.resize(flash_.geometry.planes());
  for (std::uint32_t p = 0; p < flash_.geometry.planes(); ++p) {
    const PlaneId plane{p};
    const std::uint32_t most = flash_.blocks.most_erases(plane);
    if (most == most_erases_[p]) continue;
    most_erases_[p] = most;
    if (most <= spread) continue;
    const std::optional<BlockId> least = flash_.blocks.least_worn(plane);
    if (least && most - flash_.blocks.erase_count(*least) > spread) choose(*least, Reason::wear);
  }
}

void ReclaimQueue::choose(BlockId block, Reason reason) {
  if (std::ranges::find(chosen_, block, &Chosen::block) == chosen_.end()) chosen_.push_back({block, reason});
}

void ReclaimQueue::forget(BlockId block) {
  std::erase_if(chosen_, [block](const Chosen& chosen) { return chosen.block == block; });
}

}  // namespace csdsim::ftl
