// Moving pages that have a map entry: out of blocks that are to be emptied, and out of DRAM into flash.
#pragma once

#include <vector>

#include "ftl/kv/flash_reader.h"
#include "ftl/kv/kv_jobs.h"

namespace csdsim::ftl {

class KvMover {
 public:
  KvMover(KvFlash& flash, SequenceTable& table, PageOwners& owners, ParkedPages& parked, KvLosses& losses,
          KvPlacer& placer, FlashReader& reader, KvJobs& jobs, BlockEraser& eraser)
      : flash_(flash),
        table_(table),
        owners_(owners),
        parked_(parked),
        losses_(losses),
        placer_(placer),
        reader_(reader),
        jobs_(jobs),
        eraser_(eraser) {}

  /// Whether all valid pages of the block may move: no program of one is in flight, and none was replaced by a fuller
  /// version (such a page is given back with its last reader).
  bool can_empty(BlockId block) const;
  /// Moves the valid pages of a full or retired block, and adds their number to `moved`. False, and nothing has
  /// changed: there is no room for them.
  bool empty_block(BlockId block, std::uint64_t& moved, AppendResult& result);
  /// Programs as many parked pages as there is room for. Each job has the token pages of one segment, or the pages of
  /// one window: windows are read back before they are programmed.
  void place_parked(std::vector<FlushJob>& jobs);

 private:
  bool same_job(PageOwner a, PageOwner b) const;

  KvFlash& flash_;
  SequenceTable& table_;
  PageOwners& owners_;
  ParkedPages& parked_;
  KvLosses& losses_;
  KvPlacer& placer_;
  FlashReader& reader_;
  KvJobs& jobs_;
  BlockEraser& eraser_;
};

}  // namespace csdsim::ftl
