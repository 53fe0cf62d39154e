// Blocks in which a program failed: their valid pages move out.
#pragma once

#include "ftl/block/block_collector.h"

namespace csdsim::ftl {

class FailedBlocks {
 public:
  FailedBlocks(BlockFlash& flash, PageAppender& appender, PageMover& mover, BlockCollector& collector)
      : flash_(flash), appender_(appender), mover_(mover), collector_(collector) {}

  /// Moves their valid pages. A block whose pages find no room stays until a later call: it can still be read.
  void empty(PlanBuilder& plan);

 private:
  BlockFlash& flash_;
  PageAppender& appender_;
  PageMover& mover_;
  BlockCollector& collector_;
};

}  // namespace csdsim::ftl
