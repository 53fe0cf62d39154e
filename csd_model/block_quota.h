// How the erase blocks of each plane are divided among spares and namespaces.
#pragma once

#include <cstdint>

#include "ftl/core/block_manager.h"

namespace csdsim::csd_model {

/// The blocks per plane of each namespace. `kv_share` is the share of the KV namespace; a share of 0 or 1 leaves each
/// FTL its minimum. Throws UserError when the blocks are too few.
ftl::BlockQuota block_quota(std::uint32_t blocks_per_plane, std::uint32_t spare_blocks, double kv_share);

}  // namespace csdsim::csd_model
