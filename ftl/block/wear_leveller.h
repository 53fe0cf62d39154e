// Static wear levelling of the block namespace.
#pragma once

#include <vector>

#include "ftl/block/page_mover.h"
#include "ftl/block/victims.h"

namespace csdsim::ftl {

class WearLeveller {
 public:
  WearLeveller(BlockFlash& flash, Victims& victims, PageMover& mover)
      : flash_(flash), victims_(victims), mover_(mover) {}

  bool levels() const { return flash_.config.wear_spread > 0; }
  /// The data of the least worn block, which nobody overwrites, moves into the most worn free block, and the two change
  /// places in wear. Nothing happens while the plane has a victim, or if its erase counts are close enough.
  void level(PlaneId plane, std::vector<Phase>* phases);

 private:
  BlockFlash& flash_;
  Victims& victims_;
  PageMover& mover_;
};

}  // namespace csdsim::ftl
