// The block namespace of a drive without time: which pages are written, moved and erased.
#pragma once

#include "csd_model/drive_config.h"
#include "csd_model/firmware/write_parts.h"
#include "csd_model/mapping_units.h"
#include "ftl/block/block_ftl.h"
#include "ftl/core/backing_store.h"
#include "ftl/core/block_manager.h"

namespace csdsim::csd_model {

/// The flash of the block namespace in mapping units and reclaim units, and the blocks per plane that it has.
using WearFlash = ReclaimFlash;

/// reclaim_flash()
WearFlash wear_flash(const DriveConfig& config);

/// The FTL of the drive, with the same state as in a timed drive that plans the same writes in the same order and takes
/// the planes that this one takes: always with static allocation or a single plane. Dynamic allocation takes the plane
/// that has worked least, as in a timed drive none of whose planes is ever idle. Nothing fails, and nothing happens by
/// itself: no background collection and no refresh.
struct WearDrive {
  explicit WearDrive(const DriveConfig& config) : WearDrive(config, wear_flash(config)) {}

  /// A write command, part by part as the firmware plans it.
  ftl::IoStatus write(Bytes offset, Bytes length, ftl::PlacementHandle handle);

  ftl::BlockManager blocks;
  ftl::BackingStore store;
  ftl::BlockFtl ftl;

 private:
  WearDrive(const DriveConfig& config, const WearFlash& flash);

  WriteParts parts_;
  ftl::PlaneLoad load_;
};

}  // namespace csdsim::csd_model
