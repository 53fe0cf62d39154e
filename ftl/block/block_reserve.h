// Erase blocks that the block namespace needs beside its data, and what they leave for collection.
#pragma once

#include <cstdint>

#include "ftl/block/block_ftl.h"

namespace csdsim::ftl {

/// UserError unless a namespace with `blocks` erase blocks per plane can collect garbage and export a page.
void require_collectable(const BlockFtlConfig& config, std::uint32_t blocks);

/// Erase blocks of a plane that never hold exported data, whatever over_provisioning is: the open ones, and one that
/// collection always finds free.
std::uint32_t reserved_blocks(const BlockFtlConfig& config);

/// Pages that a namespace with `blocks` erase blocks per plane of this flash exports. UserError for a bad
/// configuration, and for flash that is too small.
std::uint64_t exported_pages(const BlockFtlConfig& config, const FlashGeometry& geometry, std::uint32_t blocks);

/// Erase blocks of a plane whose pages are empty, on average over the writes to a drive that collects: those that
/// collection keeps free, and half of each open block. Their number does not depend on how many blocks a plane has.
double empty_blocks(const BlockFtlConfig& config);

/// Share of spare pages in all other blocks once everything that is exported has been written; `blocks` per plane. It
/// is at most over_provisioning, and smaller with fewer blocks; 0 or below: no page is spare.
double effective_spare(const BlockFtlConfig& config, std::uint32_t blocks);

/// The over_provisioning with which a drive of `blocks` erase blocks per plane has the effective spare share of this
/// one with `whole` blocks, and so its write amplification.
double scaled_over_provisioning(const BlockFtlConfig& config, std::uint32_t blocks, std::uint32_t whole);

/// Write amplification of uniformly random writes under greedy collection in large blocks, a share `spare` of which is
/// spare; infinite without any. With u the share of valid pages of a victim, 1 - spare = (1 - u) / -ln u, and the
/// amplification is 1 / (1 - u) (Desnoyers, "Analytic modeling of SSD write performance", SYSTOR 2012).
double greedy_amplification(double spare);

}  // namespace csdsim::ftl
