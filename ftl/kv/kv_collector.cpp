#include "ftl/kv/kv_collector.h"

#include <algorithm>

namespace csdsim::ftl {

KvStatus KvCollector::why_full(std::uint64_t pages) const {
  if (sequences_.closing() > 0 || table_.superseded_pages() > 0) return KvStatus::busy;
  const std::uint64_t wanted = pages + parked_.size() + flash_.geometry.pages_per_block;
  if (flash_.blocks.valid_pages() + wanted > flash_.blocks.total_pages()) return KvStatus::out_of_space;
  const bool under_way = !jobs_.idle() || eraser_.draining() > 0 || flash_.blocks.erasing_pages() > 0;
  return under_way ? KvStatus::busy : KvStatus::out_of_space;
}

std::optional<BlockId> KvCollector::most_garbage() {
  std::optional<BlockId> best;
  for (std::uint32_t plane = 0; plane < flash_.geometry.planes(); ++plane) {
    const auto victim = flash_.blocks.victim(PlaneId{plane});
    if (!victim || (best && flash_.blocks.valid_pages(*victim) >= flash_.blocks.valid_pages(*best))) continue;
    if (mover_.can_empty(*victim)) best = victim;
  }
  if (best) return best;
  std::uint32_t most = 0;
  const auto consider = [&](BlockId open) {
    const std::uint32_t garbage = flash_.blocks.written_pages(open) - flash_.blocks.valid_pages(open);
    // Closing it costs what it had left, and its valid pages must still find room.
    const bool room = flash_.geometry.pages_per_block - garbage <= flash_.blocks.available_pages();
    if (garbage <= most || !room || !mover_.can_empty(open)) return;
    most = garbage;
    best = open;
  };
  for (std::uint32_t plane = 0; plane < flash_.geometry.planes(); ++plane) {
    for (const Stream stream : {Stream::kv, Stream::kv_gc, Stream::kv_cold}) {
      if (const auto open = flash_.blocks.open_block(PlaneId{plane}, stream)) consider(*open);
    }
  }
  for (const BlockId open : pages_.points().own_blocks()) consider(open);
  if (best) {
    pages_.points().forget(*best);
    flash_.blocks.close(*best);
  }
  return best;
}

/// A spare block has replaced the failed one already, so no erase gives back the room that its pages move into: they
/// must leave free the block that collection needs.
std::uint64_t KvCollector::empty_failed_blocks(AppendResult& result) {
  std::uint64_t left = 0;
  for (const BlockId block : pages_.take_failed()) {
    if (flash_.blocks.state(block) != BlockState::retired) continue;  // nothing valid is left
    const std::uint32_t valid = flash_.blocks.valid_pages(block);
    if (valid <= flash_.appendable_pages() && mover_.can_empty(block) &&
        mover_.empty_block(block, flash_.stats.retired_pages_moved, result))
      continue;
    pages_.add_failed(block);
    left += valid;
  }
  return left;
}

/// A block that is still being filled, or whose pages are on their way to flash, waits. A block that is too old is
/// closed.
void KvCollector::reclaim_blocks(AppendResult& result) {
  for (const ReclaimQueue::Chosen& chosen : reclaim_.take()) {
    const BlockId block = chosen.block;
    const BlockState state = flash_.blocks.state(block);
    if (state != BlockState::open && state != BlockState::full) continue;  // it is being collected, or has failed
    const bool aged = chosen.reason == ReclaimQueue::Reason::age, levels = chosen.reason == ReclaimQueue::Reason::wear;
    // Moves must leave the room that garbage collection needs. The free pages of a block that is closed are lost.
    const std::uint64_t left =
        state == BlockState::open ? flash_.geometry.pages_per_block - flash_.blocks.written_pages(block) : 0;
    const bool can_move =
        (state == BlockState::full || aged) && flash_.blocks.valid_pages(block) + left <= flash_.appendable_pages();
    if (!can_move || !mover_.can_empty(block)) {
      reclaim_.put_back(chosen);
      continue;
    }
    if (state == BlockState::open) {
      pages_.points().forget(block);
      flash_.blocks.close(block);
    }
    pages_.points().move_to_worn_blocks(levels);
    if (mover_.empty_block(block, reclaim_.moved(chosen.reason), result))
      reclaim_.count(chosen.reason);
    else
      reclaim_.put_back(chosen);
    pages_.points().move_to_worn_blocks(false);
  }
}

void KvCollector::make_room(std::uint64_t pages, AppendResult& result) {
  if (pages_.any_failed()) pages += empty_failed_blocks(result);
  reclaim_.choose_worn_blocks();
  if (!reclaim_.empty()) reclaim_blocks(result);
  if (!parked_.empty()) mover_.place_parked(result.jobs);
  pages += parked_.size();
  if (pages > flash_.appendable_pages()) sequences_.drop_superseded_of_unpinned(result.erases);
  std::uint64_t coming =
      flash_.blocks.erasing_pages() + std::uint64_t{eraser_.draining()} * flash_.geometry.pages_per_block;
  while (pages > flash_.appendable_pages() + coming) {
    const auto victim = most_garbage();
    if (!victim || !mover_.empty_block(*victim, flash_.stats.gc_pages_moved, result)) return;
    coming += flash_.geometry.pages_per_block;
  }
}

}  // namespace csdsim::ftl
