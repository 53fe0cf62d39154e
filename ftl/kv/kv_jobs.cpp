#include "ftl/kv/kv_jobs.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace csdsim::ftl {

FlushJobId KvJobs::begin_flush(KvSequence& s, const PendingFlush& flush) {
  const FlushJobId id = new_id();
  flushes_.emplace(id.value, flush);
  ++s.pins;
  return id;
}

const std::vector<SequenceId>& KvJobs::begin_move(FlushJobId id, PendingMove move) {
  std::ranges::sort(move.sequences);
  move.sequences.erase(std::unique(move.sequences.begin(), move.sequences.end()), move.sequences.end());
  for (const SequenceId user : move.sequences) ++table_.at(user).pins;
  return moves_.emplace(id.value, std::move(move)).first->second.sequences;
}

std::unordered_set<std::uint64_t> KvJobs::being_copied() const {
  std::unordered_set<std::uint64_t> pages;
  for (const auto& [id, move] : moves_) {
    if (move.only_copy) continue;
    for (const auto& [owner, ppa] : move.pages) pages.insert(ppa.value);
  }
  return pages;
}

std::vector<PageOp> KvJobs::done(FlushJobId id) {
  if (const auto move = moves_.find(id.value); move != moves_.end()) {
    const PendingMove done = std::move(move->second);
    moves_.erase(move);
    return move_done(done);
  }
  const auto it = flushes_.find(id.value);
  if (it == flushes_.end()) throw InternalError(fmt::format("flush job {} is not pending", id.value));
  const PendingFlush flush = it->second;
  flushes_.erase(it);
  return flush_done(id, flush);
}

std::vector<PageOp> KvJobs::flush_done(FlushJobId id, const PendingFlush& flush) {
  KvSequence& s = table_.at(flush.key.sequence);
  const KvLayout& l = s.layout;
  KvLayer& layer = *s.layers[flush.key.layer.value];
  KvTile& tile = layer.tiles[flush.key.head.value / l.page_heads];
  KvHeadState& head = layer.heads[flush.key.head.value];
  switch (flush.what) {
    case PendingFlush::What::groups:
      for (std::uint32_t group = flush.first; group < flush.first + flush.count; ++group) {
        tile.token(KvKind::key, group).flushed();
        tile.token(KvKind::value, group).flushed();
      }
      break;
    case PendingFlush::What::window: {
      const KvWindow window = l.window(flush.first);
      const std::uint64_t position = l.embedding_position(window);
      for (std::uint32_t ge = 0; ge < l.embedding_pages(window); ++ge) tile.embedding(position + ge).flushed();
      readable_windows(tile, head, l);  // what the window replaces goes now
      s.settle_partial(head);
      break;
    }
    case PendingFlush::What::partial:
      // After a fork another job may write the same tokens again.
      for (PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
        if (partial == nullptr || partial->job != id) continue;
        for (KvMapEntry& entry : partial->pages) entry.flushed();
      }
      s.settle_partial(head);
      break;
  }
  flash_.dram.release(DramUse::flush_pending, l.page_size * flush.pages);
  return sequences_.unpin(flush.key.sequence);
}

std::vector<PageOp> KvJobs::move_done(const PendingMove& move) {
  for (const auto& [owner, ppa] : move.pages) {
    if (KvMapEntry* const entry = owners_.find(owner, ppa).entry) entry->flushed();
  }
  flash_.dram.release(DramUse::flush_pending, flash_.geometry.page_size * move.pages.size());
  std::vector<PageOp> erases;
  for (const SequenceId id : move.sequences) {
    const std::vector<PageOp> more = sequences_.unpin(id);
    erases.insert(erases.end(), more.begin(), more.end());
  }
  return erases;
}

}  // namespace csdsim::ftl
