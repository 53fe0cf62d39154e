// The pages of blocks that span the planes of a die.
#pragma once

#include <cstdint>

#include "base/address.h"
#include "base/fixed_divisor.h"

namespace csdsim::csd_model {

/// Such a block is one of each plane. A word line of it is a page of each plane, then the next page of each, `pages` of
/// a plane in all.
class DieBlocks {
 public:
  /// `flash`: the spanning blocks, whose planes are dies; `planes`: of a die.
  DieBlocks(const FlashGeometry& flash, std::uint32_t planes, std::uint32_t pages)
      : planes_(planes),
        pages_(pages),
        blocks_(flash.blocks_per_plane),
        block_pages_(flash.pages_per_block),
        plane_pages_(flash.pages_per_block / planes),
        by_block_(flash.pages_per_block),
        by_blocks_(flash.blocks_per_plane),
        by_line_(std::uint64_t{pages} * planes),
        by_planes_(planes) {}

  /// The page of the flash that is this page of the spanning blocks.
  PhysicalPageAddress page(PhysicalPageAddress spanning) const {
    const Place place = locate(spanning);
    return address(place, place.plane);
  }
  /// The page of `plane` in its row.
  PhysicalPageAddress page(PhysicalPageAddress spanning, std::uint32_t plane) const {
    return address(locate(spanning), plane);
  }

 private:
  struct Place {
    std::uint64_t first_plane;  ///< the first one of its die
    std::uint64_t plane;        ///< number in its die
    std::uint64_t block;        ///< number in its plane
    std::uint64_t row;          ///< page of its block
  };
  Place locate(PhysicalPageAddress spanning) const {
    const std::uint64_t block = by_block_.quotient(spanning.value), page = spanning.value - block * block_pages_;
    const std::uint64_t die = by_blocks_.quotient(block), line = by_line_.quotient(page);
    const std::uint64_t in_line = page - line * pages_ * planes_, row = by_planes_.quotient(in_line);
    return {die * planes_, in_line - row * planes_, block - die * blocks_, line * pages_ + row};
  }
  PhysicalPageAddress address(const Place& place, std::uint64_t plane) const {
    return {((place.first_plane + plane) * blocks_ + place.block) * plane_pages_ + place.row};
  }

  std::uint64_t planes_, pages_, blocks_, block_pages_, plane_pages_;
  FixedDivisor by_block_, by_blocks_, by_line_, by_planes_;
};

}  // namespace csdsim::csd_model
