// Refresh by age of the block namespace.
#pragma once

#include <vector>

#include "ftl/block/block_collector.h"

namespace csdsim::ftl {

class BlockRefresher {
 public:
  BlockRefresher(BlockFlash& flash, BlockAges& ages, Victims& victims, PageMover& mover, BlockCollector& collector)
      : flash_(flash), ages_(ages), victims_(victims), mover_(mover), collector_(collector) {}

  /// Moves the pages of the oldest old block of `plane` and erases it, after the victim that is being collected there.
  /// No phases if no block is old, or if there is no room.
  std::vector<Phase> step(PlaneId plane);

 private:
  void refresh(BlockId block, std::vector<Phase>& phases);

  BlockFlash& flash_;
  BlockAges& ages_;
  Victims& victims_;
  PageMover& mover_;
  BlockCollector& collector_;
};

}  // namespace csdsim::ftl
