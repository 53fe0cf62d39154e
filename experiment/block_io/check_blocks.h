// Checks that the flash has the erase blocks that a drive needs, and the host the memory for its queues.
#pragma once

#include "scenario/check.h"

namespace csdsim::experiment {

/// Records an error if the erase blocks of a plane are too few for both namespaces, or those of the block namespace for
/// garbage collection, if more of them are bad from the factory than spare, or if the queues of the drives do not fit
/// into the host's memory. The workload has been checked before.
void check_blocks_and_queues(scenario::Checker& c);

/// Records an error if more blocks of a plane are bad from the factory than spare. The seed says which blocks are bad,
/// so that it is known before the run.
void check_factory_bad_blocks(scenario::Checker& c);

/// What placement identifiers at `path` ask of the drive: Flexible Data Placement, and identifiers that name a reclaim
/// unit.
void check_placements(scenario::Checker& c, const std::vector<std::uint32_t>& identifiers, std::string_view path);

}  // namespace csdsim::experiment
