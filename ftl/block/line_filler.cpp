#include "ftl/block/line_filler.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

void LineFiller::note_replaced(PhysicalPageAddress to, PhysicalPageAddress old) {
  if (!tracks()) return;
  Replaced& replaced = replaced_[flash_.blocks.plane_of(to).value];
  const std::uint64_t line = to.value / flash_.config.units_per_program;
  if (replaced.line != line) replaced = {line, {}};
  if (old.valid()) replaced.blocks.push_back(flash_.blocks.block_of(old));
}

std::uint32_t LineFiller::fill(PlaneId plane, Stream stream, OpClass op_class, Phase* ops) {
  std::uint32_t empty = 0;
  while (flash_.blocks.open_pages(plane, stream) % flash_.config.units_per_program != 0) {
    flash_.blocks.invalidate(appender_.take(plane, stream, op_class, ops).value());
    ++flash_.stats.padded_pages;
    ++empty;
  }
  return empty;
}

void LineFiller::fill_before_erase(BlockId block, std::vector<Phase>* phases) {
  if (!tracks()) return;
  Phase programs;
  Phase* const ops = phases != nullptr ? &programs : nullptr;
  for (const Stream stream : {Stream::gc, Stream::cold, Stream::map})
    fill(flash_.blocks.plane_of(block), stream, OpClass::gc, ops);
  for (std::uint32_t plane = 0; plane < replaced_.size(); ++plane) {
    std::vector<BlockId>& blocks = replaced_[plane].blocks;
    if (std::ranges::find(blocks, block) == blocks.end()) continue;
    fill(PlaneId{plane}, Stream::host, OpClass::gc, ops);
    blocks.clear();
  }
  if (!programs.empty()) phases->push_back(std::move(programs));
}

}  // namespace csdsim::ftl
