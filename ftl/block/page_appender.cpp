#include "ftl/block/page_appender.h"

namespace csdsim::ftl {

std::optional<PhysicalPageAddress> PageAppender::take(PlaneId plane, Stream stream, OpClass op_class, Phase* ops) {
  const auto ppa = flash_.blocks.allocate(plane, stream);
  if (!ppa) return std::nullopt;
  ages_.note_taken(*ppa);
  if (ops != nullptr) ops->push_back(flash_.op(*ppa, PageOpKind::program, op_class));
  return ppa;
}

bool PageAppender::failed(PhysicalPageAddress ppa) {
  if (flash_.faults == nullptr) return false;
  const BlockId block = flash_.blocks.block_of(ppa);
  if (!flash_.faults->program_fails(ppa, flash_.blocks.erase_count(block))) return false;
  ++flash_.stats.program_failures;
  flash_.blocks.invalidate(ppa);
  flash_.blocks.retire(block);
  failed_.push_back(block);
  return true;
}

}  // namespace csdsim::ftl
