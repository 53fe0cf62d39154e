#include "ftl/kv/block_eraser.h"

namespace csdsim::ftl {

PageOp BlockEraser::begin(BlockId block) {
  flash_.blocks.begin_erase(block);
  reclaim_.forget(block);
  ++flash_.stats.erases;
  return flash_.op(flash_.blocks.first_page(block), PageOpKind::erase, OpClass::gc);
}

void BlockEraser::done(PhysicalPageAddress ppa) {
  const BlockId block = flash_.blocks.block_of(ppa);
  if (flash_.faults != nullptr && flash_.faults->erase_fails(block, flash_.blocks.erase_count(block))) {
    ++flash_.stats.erase_failures;
    flash_.blocks.fail_erase(block);
  } else {
    flash_.blocks.finish_erase(block);
  }
  flash_.store.erase(block);
}

void BlockEraser::readers_left(SequenceId id, std::vector<PageOp>& erases) {
  std::erase_if(draining_, [&](DrainingBlock& draining) {
    std::erase(draining.readers, id);
    if (!draining.readers.empty()) return false;
    erases.push_back(begin(draining.block));
    return true;
  });
}

}  // namespace csdsim::ftl
