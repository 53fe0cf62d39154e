// Mapping units, pages and word lines of a drive, as its FTL and its firmware see them.
#pragma once

#include "csd_model/drive_config.h"
#include "csd_model/firmware/block_service.h"
#include "csd_model/firmware/plan_runner.h"
#include "ftl/block/block_ftl.h"

namespace csdsim::csd_model {

/// How mapping units and pages share programs. Without a write buffer the units of a command go to flash with it.
PagePacking packing(const DriveConfig& config);

/// The flash as the block FTL addresses it: in mapping units. UserError for blocks that are not whole word lines, for
/// word lines of several pages in drives with a KV cache, and for units smaller than a word line in drives with faults.
FlashGeometry mapped_geometry(const DriveConfig& config);

/// The same flash in pages, as the KV FTL addresses it.
FlashGeometry kv_geometry(const DriveConfig& config);

/// The block FTL's configuration in mapping units.
ftl::BlockFtlConfig block_config(const DriveConfig& config);

/// What the firmware of the block namespace takes of a drive. Of pages whose array times differ by type, the mean.
BlockServiceConfig block_service_config(const DriveConfig& config);

}  // namespace csdsim::csd_model
