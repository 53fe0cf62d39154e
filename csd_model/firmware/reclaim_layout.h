// The places of word lines in reclaim units of several blocks.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"
#include "contracts/page_op.h"
#include "ftl/core/stripe.h"

namespace csdsim::csd_model {

/// A reclaim unit of the FTL is `over` planes wide and `deep` blocks of each deep. Its word lines go over its planes in
/// stripe order, a line to each, through the first block of each plane, then through the next. So consecutive lines are
/// programmed side by side, and each block is written in order.
class ReclaimLayout {
 public:
  /// `flash`: the blocks, in pages. `unit_blocks`: of a unit; they divide the planes, or are a multiple of them.
  /// `blocks_per_plane`: of those that units take. `line_pages`: pages of a word line, which stay together.
  ReclaimLayout(const FlashGeometry& flash, const ftl::StripeOrder& order, std::uint32_t unit_blocks,
                std::uint32_t blocks_per_plane, std::uint32_t line_pages);

  const FlashGeometry& flash() const { return flash_; }
  std::uint32_t blocks() const { return over_ * deep_; }
  /// The page of the flash that is page `unit` of the units, counted through all of them.
  PhysicalPageAddress in_flash(PhysicalPageAddress unit) const;
  PlaneId plane_of(PhysicalPageAddress unit) const { return stripe_.plane_of_rank(locate(unit.value).rank); }
  /// Turns the erase of a unit into one of each of its blocks, whose addresses are still those of the units.
  void split_erases(std::vector<std::vector<PageOp>>& phases) const;

 private:
  PageOp erase_of(PageOp erase, std::uint32_t block) const;
  struct Place {
    std::uint32_t rank = 0;   ///< rank of the plane in stripe order
    std::uint64_t block = 0;  ///< block of the plane
    std::uint64_t page = 0;   ///< page of the block
  };
  Place locate(std::uint64_t page) const;

  FlashGeometry flash_;
  ftl::Stripe stripe_;
  std::uint32_t line_, over_, deep_, units_per_plane_;
  std::uint64_t unit_pages_;
};

}  // namespace csdsim::csd_model
