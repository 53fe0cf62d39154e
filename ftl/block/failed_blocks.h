// Blocks in which a program failed: what is still valid in them moves out.
#pragma once

#include "ftl/block/block_collector.h"

namespace csdsim::ftl {

class FailedBlocks {
 public:
  FailedBlocks(BlockFlash& flash, PageAppender& appender, PageMover& mover, BlockCollector& collector)
      : flash_(flash), appender_(appender), mover_(mover), collector_(collector) {}

  /// Where there is no room for a block's pages it stays for now: it can be read.
  void empty(PlanBuilder& plan);

 private:
  BlockFlash& flash_;
  PageAppender& appender_;
  PageMover& mover_;
  BlockCollector& collector_;
};

}  // namespace csdsim::ftl
