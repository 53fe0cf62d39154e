// From what a scenario says about block commands to what makes them.
#pragma once

#include <cstdint>

#include "base/units.h"
#include "csd_model/scenario/block_workload.h"
#include "csd_model/workload/synthetic.h"

namespace csd_model {

/// Requests in logical blocks of `block` bytes on a drive that exports `capacity`.
workload::SyntheticConfig synthetic_config(const csdsim::scenario::BlockIoWorkload& work, csdsim::Bytes block,
                                           csdsim::Bytes capacity, std::uint64_t seed);

}  // namespace csd_model
