// Mapping units, pages and word lines of a drive, as its FTL and its firmware see them.
#pragma once

#include "csd_model/drive_config.h"
#include "csd_model/firmware/block_service.h"
#include "csd_model/firmware/plan_runner.h"
#include "ftl/block/block_ftl.h"
#include "ftl/core/block_manager.h"

namespace csdsim::csd_model {

/// The sharing of programs by mapping units and pages. Without a write buffer the units of a command go to flash with
/// it.
PagePacking packing(const DriveConfig& config);

/// The flash in mapping units, in the erase blocks of planes or dies. UserError for blocks that are not whole word
/// lines, for word lines of several pages in drives with a KV cache, and for units smaller than a word line in drives
/// with faults.
FlashGeometry mapped_geometry(const DriveConfig& config);

/// The flash of the block namespace as its FTL counts it, in mapping units and reclaim units, and the blocks per plane
/// that it has.
struct ReclaimFlash {
  FlashGeometry geometry;
  ftl::BlockQuota quota;
};

/// UserError for what reclaim_shape() and mapped_geometry() refuse, and for reclaim units of several blocks in drives
/// with a KV cache, with spare blocks or with faults.
ReclaimFlash reclaim_flash(const DriveConfig& config);

/// The same flash in pages, as the KV FTL addresses it.
FlashGeometry kv_geometry(const DriveConfig& config);

/// The block FTL's configuration in mapping units.
ftl::BlockFtlConfig block_config(const DriveConfig& config);

/// What the firmware of the block namespace takes of a drive. Of pages whose array times differ by type, the mean.
BlockServiceConfig block_service_config(const DriveConfig& config);

}  // namespace csdsim::csd_model
