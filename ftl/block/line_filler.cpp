#include "ftl/block/line_filler.h"

#include <algorithm>
#include <utility>

namespace csdsim::ftl {

LineFiller::LineFiller(BlockFlash& flash, PageAppender& appender) : flash_(flash), appender_(appender) {
  if (!tracks()) return;
  replaced_.resize(std::size_t{flash.geometry.planes()} * flash.config.handles);
  moved_to_ = {Stream::gc, Stream::cold};
  if (flash.config.isolation == Isolation::persistently)
    for (std::uint32_t handle = 1; handle < flash.config.handles; ++handle)
      moved_to_.push_back(gc_stream(PlacementHandle{handle}));
}

void LineFiller::note_replaced(PhysicalPageAddress to, PhysicalPageAddress old) {
  if (!tracks()) return;
  const PlacementHandle handle = handle_of(flash_.blocks.stream_of(flash_.blocks.block_of(to)));
  Replaced& replaced = replaced_[std::size_t{flash_.blocks.plane_of(to).value} * flash_.config.handles + handle.value];
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
  for (const Stream stream : moved_to_) fill(flash_.blocks.plane_of(block), stream, OpClass::gc, ops);
  const std::uint32_t handles = flash_.config.handles;
  for (std::uint32_t i = 0; i < replaced_.size(); ++i) {
    std::vector<BlockId>& blocks = replaced_[i].blocks;
    if (std::ranges::find(blocks, block) == blocks.end()) continue;
    fill(PlaneId{i / handles}, host_stream(PlacementHandle{i % handles}), OpClass::gc, ops);
    blocks.clear();
  }
  if (!programs.empty()) phases->push_back(std::move(programs));
}

}  // namespace csdsim::ftl
