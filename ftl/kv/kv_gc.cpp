// Garbage collection of the KV namespace, and blocks of it that failed.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

/// Pages that appends may take: all but a block's worth, which any victim's valid pages fit into.
std::uint64_t KvFtl::appendable_pages() const {
  const std::uint64_t available = blocks_.available_pages();
  return available - std::min<std::uint64_t>(available, geometry_.pages_per_block);
}

/// What is under way, and the collection that it makes possible, may give `pages` to an append.
bool KvFtl::room_may_come(std::uint64_t pages) const {
  if (closing_sequences_ > 0 || superseded_pages() > 0) return true;
  if (blocks_.valid_pages() + pages + geometry_.pages_per_block > blocks_.total_pages()) {
    return false;
  }
  return !pending_.empty() || !moves_.empty() || !draining_.empty() || blocks_.erasing_pages() > 0;
}

std::uint32_t KvFtl::take_slot(MapSegment& segment) {
  if (free_slots_.empty()) {
    slots_.push_back(&segment);
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = &segment;
  return slot;
}

KvFtl::FoundEntry KvFtl::find_entry(PageOwner owner, PhysicalPageAddress ppa) const {
  if (slots_[owner.slot] == nullptr) return {};
  MapSegment& segment = *slots_[owner.slot];
  if ((owner.position & kEmbedding) == 0) {
    KvMapEntry& entry = segment.map.token_at(owner.position);
    return {entry.ppa() == ppa ? &entry : nullptr, 0};
  }
  const std::uint32_t position = owner.position & ~kEmbedding;
  if (position >= segment.map.first_position() && position < segment.map.end_position()) {
    if (KvMapEntry& entry = segment.map.embedding_at(position); entry.ppa() == ppa) return {&entry, 0};
  }
  const auto s = sequences_.find(segment.key.sequence);
  if (s == sequences_.end() || s->second.segment != segment.number) return {};
  Head& head = s->second.layers[segment.key.layer.value]->heads[segment.key.head.value];
  const KvWindow window = segment.layout.window(segment.layout.window_at(position));
  const std::uint64_t first = segment.layout.embedding_position(window);
  for (PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
    if (partial == nullptr || partial->window != segment.layout.window_at(position)) continue;
    KvMapEntry& entry = partial->pages[position - first];
    if (entry.ppa() == ppa) return {&entry, partial->end - window.first};
  }
  return {};
}

KvPageId KvFtl::page_id(PageOwner owner) const {
  const MapSegment& segment = *slots_[owner.slot];
  if ((owner.position & kEmbedding) == 0) {
    const std::uint32_t per_group = segment.layout.pages_per_group();
    const KvKind kind = owner.position % per_group == 0 ? KvKind::key : KvKind::value;
    return {segment.key, token_page_kind(kind, segment.layout), owner.position / per_group, 0};
  }
  const std::uint32_t position = owner.position & ~kEmbedding;
  const std::uint32_t window = segment.layout.window_at(position);
  const std::uint64_t first = segment.layout.embedding_position(segment.layout.window(window));
  return {segment.key, PageKind::embedding, static_cast<std::uint32_t>(position - first), window};
}

/// A page whose program is in flight stays where it is: its flush will say where it landed. One that was replaced goes
/// with its last reader.
bool KvFtl::all_in_flash(BlockId block) {
  const std::uint64_t first = blocks_.first_page(block).value;
  for (auto page = blocks_.next_valid(block, 0); page; page = blocks_.next_valid(block, *page + 1)) {
    const KvMapEntry* const entry = find_entry(owners_.get(first + *page), {first + *page}).entry;
    if (entry == nullptr || entry->in_dram()) return false;
  }
  return true;
}

PageOp KvFtl::begin_erase(BlockId block) {
  blocks_.begin_erase(block);
  std::erase_if(reclaim_, [block](const BlockReclaim& r) { return r.block == block; });
  ++stats_.erases;
  return op(blocks_.first_page(block), PageOpKind::erase, OpClass::gc);
}

/// The block to collect: of the planes' victims the one with the fewest valid pages, or the open block that has lost
/// the most pages where no full block has lost any. Open blocks are closed; what they had left comes back with the
/// erase.
std::optional<BlockId> KvFtl::most_garbage() {
  std::optional<BlockId> best;
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    const auto victim = blocks_.victim(PlaneId{plane});
    if (!victim || (best && blocks_.valid_pages(*victim) >= blocks_.valid_pages(*best))) continue;
    if (all_in_flash(*victim)) best = victim;
  }
  if (best) return best;
  std::uint32_t most = 0;
  const auto consider = [&](BlockId open) {
    const std::uint32_t garbage = blocks_.written_pages(open) - blocks_.valid_pages(open);
    // Closing it costs what it had left, and its valid pages must still find room.
    const bool room = geometry_.pages_per_block - garbage <= blocks_.available_pages();
    if (garbage <= most || !room || !all_in_flash(open)) return;
    most = garbage;
    best = open;
  };
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    for (const Stream stream : {Stream::kv, Stream::kv_gc, Stream::kv_cold}) {
      if (const auto open = blocks_.open_block(PlaneId{plane}, stream)) consider(*open);
    }
  }
  for (const BlockId open : points_.own_blocks()) consider(open);
  if (best) {
    points_.forget(*best);
    blocks_.close(*best);
  }
  return best;
}

/// Moves the valid pages of a full or retired block. False, and nothing has changed: there is no room for them.
bool KvFtl::empty_block(BlockId block, AppendResult& result) {
  const std::uint32_t valid = blocks_.valid_pages(block);
  if (valid > blocks_.available_pages() || !dram_.fits(geometry_.page_size * valid)) return false;
  const bool retired = blocks_.state(block) != BlockState::full;
  if (!retired) {
    if (valid == 0) {
      result.erases.push_back(begin_erase(block));
      return true;
    }
    blocks_.begin_collect(block);
  }
  FlushJob job;
  job.id = FlushJobId{next_job_++};
  job.kind = FlushKind::move;
  PendingMove move;
  const std::uint64_t first = blocks_.first_page(block).value;
  for (auto page = blocks_.next_valid(block, 0); page; page = blocks_.next_valid(block, *page + 1)) {
    const PhysicalPageAddress from{first + *page};
    const PageOwner owner = owners_.get(from.value);
    const KvPageId id = page_id(owner);
    const MapSegment& segment = *slots_[owner.slot];
    const auto to = place_moved(id, sequences_.at(segment.users.front()), owner, from, job);
    if (!to) break;  // a program failed and no spare block was left: the rest stays, it can be read
    const PlannedRead read_from = read_op(from, OpClass::gc);
    job.reads.push_back(read_from.op);
    if (read_from.lost) lost_.insert(to->value);
    const FoundEntry found = find_entry(owner, from);
    if (store_.carried()) {
      store_.write(*to, read(id, segment, from, found.partial_tokens),
                   oob_tag(id, segment.layout, segment.number, found.partial_tokens));
    }
    *found.entry = KvMapEntry(*to, false);
    drop_page(from);
    move.pages.push_back({owner, *to});
    move.sequences.insert(move.sequences.end(), segment.users.begin(), segment.users.end());
  }
  std::ranges::sort(move.sequences);
  move.sequences.erase(std::unique(move.sequences.begin(), move.sequences.end()), move.sequences.end());
  for (const SequenceId id : move.sequences) ++sequences_.at(id).pins;
  if (!retired && blocks_.valid_pages(block) == 0) draining_.push_back({block, move.sequences});
  dram_.charge(DramUse::flush_pending, geometry_.page_size * move.pages.size());
  stats_.gc_pages_moved += move.pages.size();
  ++stats_.gc_blocks;
  moves_.emplace(job.id.value, std::move(move));
  result.jobs.push_back(std::move(job));
  return true;
}

void KvFtl::empty_failed_blocks(AppendResult& result) {
  for (const BlockId block : std::exchange(failed_, {})) {
    if (blocks_.state(block) != BlockState::retired) continue;  // nothing valid is left
    if (!all_in_flash(block) || !empty_block(block, result)) failed_.push_back(block);
  }
}

/// Chooses the blocks that have become too old.
void KvFtl::pass(SimTime now) {
  now_ = now;
  for (; !written_.empty() && written_.front().at + config_.refresh_age <= now; written_.pop_front()) {
    const WrittenBlock& oldest = written_.front();
    if (blocks_.erase_count(oldest.block) == oldest.erases) reclaim(oldest.block, stats_.refreshed_blocks);
  }
}

void KvFtl::reclaim(BlockId block, std::uint64_t& counter) {
  const bool chosen = std::ranges::any_of(reclaim_, [block](const BlockReclaim& r) { return r.block == block; });
  if (!chosen) reclaim_.push_back({block, &counter});
}

/// Static wear levelling. Looks at the planes whose largest erase count has grown since the last call. If it is too far
/// above that of the namespace's least worn block, the pages of this block are to move.
void KvFtl::choose_worn_blocks() {
  most_erases_.resize(geometry_.planes());
  for (std::uint32_t p = 0; p < geometry_.planes(); ++p) {
    const PlaneId plane{p};
    const std::uint32_t most = blocks_.most_erases(plane);
    if (most == most_erases_[p]) continue;
    most_erases_[p] = most;
    if (most <= config_.wear_spread) continue;
    const std::optional<BlockId> least = blocks_.least_worn(plane);
    if (least && most - blocks_.erase_count(*least) > config_.wear_spread) reclaim(*least, stats_.levelled_blocks);
  }
}

/// A block that is still being filled, or whose pages are on their way to flash, waits. A block that is too old is
/// closed.
void KvFtl::reclaim_blocks(AppendResult& result) {
  for (const BlockReclaim& chosen : std::exchange(reclaim_, {})) {
    const BlockId block = chosen.block;
    const BlockState state = blocks_.state(block);
    if (state != BlockState::open && state != BlockState::full) continue;  // it is being collected, or has failed
    const bool aged = chosen.counter == &stats_.refreshed_blocks, levels = chosen.counter == &stats_.levelled_blocks;
    // Moves must leave the room that garbage collection needs. The free pages of a block that is closed are lost.
    const std::uint64_t left = state == BlockState::open ? geometry_.pages_per_block - blocks_.written_pages(block) : 0;
    const bool can_move =
        (state == BlockState::full || aged) && blocks_.valid_pages(block) + left <= appendable_pages();
    if (!can_move || !all_in_flash(block)) {
      reclaim_.push_back(chosen);
      continue;
    }
    if (state == BlockState::open) {
      points_.forget(block);
      blocks_.close(block);
    }
    points_.move_to_worn_blocks(levels);
    if (empty_block(block, result))
      ++*chosen.counter;
    else
      reclaim_.push_back(chosen);
    points_.move_to_worn_blocks(false);
  }
}

/// Starts what it takes to give `pages` to an append, and to parked pages first, as far as there is room for moves now.
void KvFtl::make_room(std::uint64_t pages, AppendResult& result) {
  if (!failed_.empty()) empty_failed_blocks(result);
  if (config_.wear_spread > 0) choose_worn_blocks();
  if (!reclaim_.empty()) reclaim_blocks(result);
  if (!parked_.empty()) place_parked(result.jobs);
  pages += parked_.size();
  if (pages > appendable_pages()) {
    // A fork replaces pages of sequences that nobody pins: no unpin will give them back.
    for (auto& [id, s] : sequences_) {
      if (s.pins > 0) continue;
      drop_superseded(s, result.erases);
    }
  }
  std::uint64_t coming = blocks_.erasing_pages() + std::uint64_t{draining_.size()} * geometry_.pages_per_block;
  while (pages > appendable_pages() + coming) {
    const auto victim = most_garbage();
    if (!victim || !empty_block(*victim, result)) return;
    coming += geometry_.pages_per_block;
  }
}

std::vector<PageOp> KvFtl::move_done(const PendingMove& move) {
  for (const auto& [owner, ppa] : move.pages) {
    if (KvMapEntry* const entry = find_entry(owner, ppa).entry) entry->flushed();
  }
  dram_.release(DramUse::flush_pending, geometry_.page_size * move.pages.size());
  std::vector<PageOp> erases;
  for (const SequenceId id : move.sequences) {
    const std::vector<PageOp> more = unpin(id);
    erases.insert(erases.end(), more.begin(), more.end());
  }
  return erases;
}

/// `id` has no pin left: nothing that was planned for it before is still running.
void KvFtl::readers_left(SequenceId id, std::vector<PageOp>& erases) {
  std::erase_if(draining_, [&](DrainingBlock& draining) {
    std::erase(draining.readers, id);
    if (!draining.readers.empty()) return false;
    erases.push_back(begin_erase(draining.block));
    return true;
  });
}

}  // namespace csdsim::ftl
