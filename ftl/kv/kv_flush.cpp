// The flushes that carry what was appended to flash.
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "ftl/kv/kv_ftl.h"
#include "ftl/kv/kv_sequence.h"

namespace csdsim::ftl {

FlushJobId KvFtl::begin_flush(Sequence& s, const PendingFlush& flush) {
  const FlushJobId id{next_job_++};
  pending_.emplace(id.value, flush);
  ++s.pins;
  return id;
}

std::vector<PageOp> KvFtl::flush_done(FlushJobId id) {
  if (const auto move = moves_.find(id.value); move != moves_.end()) {
    const PendingMove done = std::move(move->second);
    moves_.erase(move);
    return move_done(done);
  }
  const auto it = pending_.find(id.value);
  if (it == pending_.end()) throw InternalError(fmt::format("flush job {} is not pending", id.value));
  const PendingFlush flush = it->second;
  pending_.erase(it);
  Sequence& s = sequences_.at(flush.key.sequence);
  const KvLayout& l = s.layout;
  Layer& layer = *s.layers[flush.key.layer.value];
  Tile& tile = layer.tiles[flush.key.head.value / l.page_heads];
  Head& head = layer.heads[flush.key.head.value];
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
      partial_done(s, head);
      break;
    }
    case PendingFlush::What::partial:
      // After a fork another job may write the same tokens again.
      for (PartialWindow* const partial : {head.partial.get(), head.coming_partial.get()}) {
        if (partial == nullptr || partial->job != id) continue;
        for (KvMapEntry& entry : partial->pages) entry.flushed();
      }
      partial_done(s, head);
      break;
  }
  dram_.release(DramUse::flush_pending, l.page_size * flush.pages);
  return unpin(flush.key.sequence);
}

}  // namespace csdsim::ftl
