// Erases of the KV namespace, and emptied blocks that wait for their last readers before they are erased.
#pragma once

#include <cstddef>
#include <vector>

#include "ftl/kv/kv_flash.h"
#include "ftl/kv/reclaim_queue.h"

namespace csdsim::ftl {

class BlockEraser {
 public:
  BlockEraser(KvFlash& flash, ReclaimQueue& reclaim) : flash_(flash), reclaim_(reclaim) {}

  /// Returns the erase to be run. Call done() after it.
  PageOp begin(BlockId block);
  void done(PhysicalPageAddress ppa);

  /// Keeps an emptied block from being erased while `readers` may have reads of it in flight.
  void drain(BlockId block, const std::vector<SequenceId>& readers) { draining_.push_back({block, readers}); }
  /// Call it when `id` has no pin left: all reads that were planned for it are done.
  void readers_left(SequenceId id, std::vector<PageOp>& erases);
  std::size_t draining() const { return draining_.size(); }

 private:
  struct DrainingBlock {
    BlockId block;
    std::vector<SequenceId> readers;
  };
  KvFlash& flash_;
  ReclaimQueue& reclaim_;
  std::vector<DrainingBlock> draining_;
};

}  // namespace csdsim::ftl
