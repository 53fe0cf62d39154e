// From what a scenario says about block commands to what makes them.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "experiment/requests/synthetic.h"
#include "scenario/block_workload.h"

namespace csdsim::experiment {

/// Requests in logical blocks of `block` bytes on a drive that exports `capacity`.
workload::SyntheticConfig synthetic_config(const scenario::BlockIoWorkload& work, Bytes block, Bytes capacity,
                                           std::uint64_t seed);

}  // namespace csdsim::experiment
