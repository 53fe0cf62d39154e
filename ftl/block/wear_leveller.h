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
  /// Moves the pages of the least worn block, which nobody overwrites, into the most worn free block, and erases it.
  /// Does nothing while the plane has a victim, or where its erase counts differ by at most wear_spread.
  void level(PlaneId plane, std::vector<Phase>* phases);

 private:
  BlockFlash& flash_;
  Victims& victims_;
  PageMover& mover_;
};

}  // namespace csdsim::ftl
