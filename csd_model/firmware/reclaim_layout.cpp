#include "csd_model/firmware/reclaim_layout.h"

#include <algorithm>
#include <utility>

namespace csdsim::csd_model {

ReclaimLayout::ReclaimLayout(const FlashGeometry& flash, const ftl::StripeOrder& order, std::uint32_t unit_blocks,
                             std::uint32_t blocks_per_plane, std::uint32_t line_pages)
    : flash_(flash),
      stripe_(flash, order),
      line_(line_pages),
      over_(std::min(unit_blocks, flash.planes())),
      deep_(unit_blocks / over_),
      units_per_plane_(blocks_per_plane / deep_),
      unit_pages_(std::uint64_t{flash.pages_per_block} * unit_blocks) {}

ReclaimLayout::Place ReclaimLayout::locate(std::uint64_t page) const {
  const std::uint64_t unit = page / unit_pages_, in_unit = page % unit_pages_;
  const std::uint64_t line = in_unit / line_, lines_of_block = flash_.pages_per_block / line_;
  const std::uint64_t row = line / over_;
  return {.rank = static_cast<std::uint32_t>(unit / units_per_plane_ * over_ + line % over_),
          .block = unit % units_per_plane_ * deep_ + row / lines_of_block,
          .page = row % lines_of_block * line_ + in_unit % line_};
}

PhysicalPageAddress ReclaimLayout::in_flash(PhysicalPageAddress unit) const {
  const Place at = locate(unit.value);
  const std::uint64_t plane = stripe_.plane_of_rank(at.rank).value;
  return {(plane * flash_.blocks_per_plane + at.block) * flash_.pages_per_block + at.page};
}

void ReclaimLayout::split_erases(std::vector<std::vector<PageOp>>& phases) const {
  for (std::vector<PageOp>& phase : phases) {
    if (std::ranges::none_of(phase, [](const PageOp& op) { return op.kind == PageOpKind::erase; })) continue;
    std::vector<PageOp> split;
    for (const PageOp& op : phase) {
      const std::uint32_t parts = op.kind == PageOpKind::erase ? blocks() : 1;
      for (std::uint32_t block = 0; block < parts; ++block)
        split.push_back(op.kind == PageOpKind::erase ? erase_of(op, block) : op);
    }
    phase = std::move(split);
  }
}

/// The erase of block `block` of the unit that `erase` is of.
PageOp ReclaimLayout::erase_of(PageOp erase, std::uint32_t block) const {
  const std::uint64_t row = std::uint64_t{block / over_} * (flash_.pages_per_block / line_);
  erase.ppa.value = erase.ppa.value / unit_pages_ * unit_pages_ + (row * over_ + block % over_) * line_;
  return erase;
}

}  // namespace csdsim::csd_model
