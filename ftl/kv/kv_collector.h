// Garbage collection of the KV namespace: which blocks are emptied so that appends find room.
#pragma once

#include <cstdint>
#include <optional>

#include "ftl/kv/kv_mover.h"

namespace csdsim::ftl {

class KvCollector {
 public:
  KvCollector(KvFlash& flash, SequenceTable& table, ParkedPages& parked, KvPages& pages, KvSequences& sequences,
              KvJobs& jobs, KvMover& mover, BlockEraser& eraser, ReclaimQueue& reclaim)
      : flash_(flash),
        table_(table),
        parked_(parked),
        pages_(pages),
        sequences_(sequences),
        jobs_(jobs),
        mover_(mover),
        eraser_(eraser),
        reclaim_(reclaim) {}

  /// Starts the moves and erases that give room to parked pages and then to `pages` of an append, as far as pages can
  /// move now.
  void make_room(std::uint64_t pages, AppendResult& result);
  /// Why `pages` cannot be had now: busy (what is under way, and the collection that it makes possible, may give them)
  /// or out_of_space.
  KvStatus why_full(std::uint64_t pages) const;
  /// The block to collect: of the planes' victims the one with the fewest valid pages, or the open block that has lost
  /// the most pages where no full block has lost any. Open blocks are closed; what they had left comes back with the
  /// erase.
  std::optional<BlockId> most_garbage();

 private:
  /// Returns the valid pages of those for which there is no room.
  std::uint64_t empty_failed_blocks(AppendResult& result);
  void reclaim_blocks(AppendResult& result);

  KvFlash& flash_;
  SequenceTable& table_;
  ParkedPages& parked_;
  KvPages& pages_;
  KvSequences& sequences_;
  KvJobs& jobs_;
  KvMover& mover_;
  BlockEraser& eraser_;
  ReclaimQueue& reclaim_;
};

}  // namespace csdsim::ftl
