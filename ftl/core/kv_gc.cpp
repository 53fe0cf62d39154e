// Garbage collection of the KV namespace, and blocks of it that failed.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "ftl/core/kv_ftl.h"
#include "ftl/core/kv_sequence.h"

namespace csdsim::ftl {

/// Pages that appends may take: all but a block's worth, which any victim's valid pages fit into.
std::uint64_t KvFtl::appendable_pages() const {
  const std::uint64_t available = blocks_.available_pages(Namespace::kv);
  return available - std::min<std::uint64_t>(available, geometry_.pages_per_block);
}

/// What is under way, and the collection that it makes possible, may give `pages` to an append.
bool KvFtl::room_may_come(std::uint64_t pages) const {
  if (closing_sequences_ > 0) return true;
  if (blocks_.valid_pages(Namespace::kv) + pages + geometry_.pages_per_block > blocks_.total_pages(Namespace::kv)) {
    return false;
  }
  return !pending_.empty() || !moves_.empty() || !draining_.empty() || blocks_.erasing_pages(Namespace::kv) > 0;
}

std::uint32_t KvFtl::take_slot(const KvKey& key) {
  if (free_slots_.empty()) {
    slots_.push_back(key);
    return static_cast<std::uint32_t>(slots_.size() - 1);
  }
  const std::uint32_t slot = free_slots_.back();
  free_slots_.pop_back();
  slots_[slot] = key;
  return slot;
}

KvMapEntry& KvFtl::entry(PageOwner owner) {
  const KvKey& key = slots_[owner.slot];
  HeadMap& map = sequences_.at(key.sequence).layers[key.layer.value]->heads[key.head.value].map;
  if ((owner.position & kEmbedding) != 0) return map.embedding_at(owner.position & ~kEmbedding);
  return map.token_at(owner.position);
}

KvPageId KvFtl::page_id(PageOwner owner) const {
  const KvKey& key = slots_[owner.slot];
  if ((owner.position & kEmbedding) == 0) {
    return {key, owner.position % 2 == 0 ? PageKind::token_k : PageKind::token_v, owner.position / 2, 0};
  }
  const std::uint32_t position = owner.position & ~kEmbedding;
  const std::uint32_t pages = sequences_.at(key.sequence).layout.embedding_pages();
  return {key, PageKind::embedding, position % pages, position / pages};
}

/// A page whose program is in flight stays where it is: its flush will say where it landed.
bool KvFtl::all_in_flash(BlockId block) {
  const std::uint64_t first = blocks_.first_page(block).value;
  for (auto page = blocks_.next_valid(block, 0); page; page = blocks_.next_valid(block, *page + 1)) {
    if (entry(owners_.get(first + *page)).in_dram()) return false;
  }
  return true;
}

PageOp KvFtl::begin_erase(BlockId block) {
  blocks_.begin_erase(block);
  store_.erase(block);
  ++stats_.erases;
  return op(blocks_.first_page(block), PageOpKind::erase, OpClass::gc);
}

/// The block to collect: of the planes' victims the one with the fewest valid pages, or the open block that has lost
/// the most pages where no full block has lost any. Open blocks are closed; what they had left comes back with the
/// erase.
std::optional<BlockId> KvFtl::most_garbage() {
  std::optional<BlockId> best;
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    const auto victim = blocks_.victim(PlaneId{plane}, Namespace::kv);
    if (!victim || (best && blocks_.valid_pages(*victim) >= blocks_.valid_pages(*best))) continue;
    if (all_in_flash(*victim)) best = victim;
  }
  if (best) return best;
  std::uint32_t most = 0;
  for (std::uint32_t plane = 0; plane < geometry_.planes(); ++plane) {
    for (const Stream stream : {Stream::kv, Stream::kv_gc}) {
      const auto open = blocks_.open_block(PlaneId{plane}, stream);
      if (!open) continue;
      const std::uint32_t garbage = blocks_.written_pages(*open) - blocks_.valid_pages(*open);
      // Closing it costs what it had left, and its valid pages must still find room.
      const bool room = geometry_.pages_per_block - garbage <= blocks_.available_pages(Namespace::kv);
      if (garbage <= most || !room || !all_in_flash(*open)) continue;
      most = garbage;
      best = open;
    }
  }
  if (best) blocks_.close(*best);
  return best;
}

/// Moves the valid pages of a full or retired block. False, and nothing has changed: there is no room for them.
bool KvFtl::empty_block(BlockId block, AppendResult& result) {
  const std::uint32_t valid = blocks_.valid_pages(block);
  if (valid > blocks_.available_pages(Namespace::kv) || !dram_.fits(geometry_.page_size * valid)) return false;
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
  PendingMove move;
  const std::uint64_t first = blocks_.first_page(block).value;
  for (auto page = blocks_.next_valid(block, 0); page; page = blocks_.next_valid(block, *page + 1)) {
    const PhysicalPageAddress from{first + *page};
    const PageOwner owner = owners_.get(from.value);
    const auto to = allocate(blocks_.plane_of(from), Stream::kv_gc, OpClass::gc, job.programs);
    if (!to) break;  // a program failed and no spare block was left: the rest stays, it can be read
    job.reads.push_back(read_op(from, OpClass::gc));
    const KvPageId id = page_id(owner);
    if (store_.carried()) {
      const KvLayout& layout = sequences_.at(id.key.sequence).layout;
      store_.write(*to, read(id, layout, from), oob_tag(id, layout));
    }
    entry(owner) = KvMapEntry(*to, false);
    owners_[to->value] = owner;
    blocks_.invalidate(from);
    move.pages.push_back(owner);
    move.sequences.push_back(id.key.sequence);
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

/// Starts what it takes to give `pages` to an append, as far as there is room for moves now.
void KvFtl::make_room(std::uint64_t pages, AppendResult& result) {
  if (!failed_.empty()) empty_failed_blocks(result);
  std::uint64_t coming =
      blocks_.erasing_pages(Namespace::kv) + std::uint64_t{draining_.size()} * geometry_.pages_per_block;
  while (pages > appendable_pages() + coming) {
    const auto victim = most_garbage();
    if (!victim || !empty_block(*victim, result)) return;
    coming += geometry_.pages_per_block;
  }
}

std::vector<PageOp> KvFtl::move_done(const PendingMove& move) {
  for (const PageOwner owner : move.pages) entry(owner).flushed();
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
