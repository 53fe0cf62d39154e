#include "ftl/block/page_reader.h"

namespace csdsim::ftl {

/// The errors of a read, where pages have some. False: they cannot be corrected.
bool PageReader::draw_errors(LogicalPage page, PhysicalPageAddress ppa, PageOp& read) {
  const BlockId block = flash_.blocks.block_of(ppa);
  const ReadOutcome outcome =
      flash_.faults->read(ppa, flash_.blocks.erase_count(block), flash_.blocks.count_read(block));
  read.retries = outcome.retries;
  flash_.stats.read_retries += outcome.retries;
  if (!outcome.uncorrectable && !lost_.contains(page.value)) return true;
  ++flash_.stats.uncorrectable_reads;
  return false;
}

}  // namespace csdsim::ftl
