// Erase blocks that the block namespace needs beside its data.
#pragma once

#include <cstdint>

#include "ftl/block/block_ftl.h"

namespace csdsim::ftl {

/// UserError unless a namespace with `blocks` erase blocks per plane can collect garbage and export a page.
void require_collectable(const BlockFtlConfig& config, std::uint32_t blocks);

}  // namespace csdsim::ftl
