// Whether the flash has the erase blocks that a drive needs.
#pragma once

#include "scenario/check.h"

namespace csdsim::experiment {

/// Records an error if the erase blocks of a plane are too few for both namespaces, or those of the block namespace for
/// garbage collection. The workload has been checked before.
void check_erase_blocks(scenario::Checker& c);

}  // namespace csdsim::experiment
