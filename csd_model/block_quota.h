// The division of each plane's erase blocks among spares and namespaces.
#pragma once

#include <cstdint>

#include "ftl/core/block_manager.h"

namespace csdsim::csd_model {

/// The blocks per plane of each namespace. `kv_share` is the share of the KV namespace; a share of 0 or 1 leaves each
/// FTL its minimum. Throws UserError when the blocks are too few.
ftl::BlockQuota block_quota(std::uint32_t blocks_per_plane, std::uint32_t spare_blocks, double kv_share);

/// A reclaim unit takes one block of each of `over` planes, then the next of each, `deep` times.
struct ReclaimShape {
  std::uint32_t over = 1, deep = 1;
};
/// That of units of `unit_blocks` blocks. UserError, which names reclaim_unit_blocks, if they divide neither `planes`
/// nor are a multiple of them that divides the `blocks` that the namespace has in each plane.
ReclaimShape reclaim_shape(std::uint32_t unit_blocks, std::uint32_t planes, std::uint32_t blocks);

}  // namespace csdsim::csd_model
