// Teacher forcing with decoding attention in the drive.
#pragma once

#include <span>
#include <vector>

#include "csd_model/scenario/scenario.h"
#include "host_runtime/core/eval/evaluation.h"

namespace csd_model {

struct DriveForcing {
  std::vector<std::vector<csdsim::host::Prediction>> predictions;  ///< [window][decode - 1]
  std::uint64_t page_ops = 0;
  std::string failure;  ///< pages that were not what had been written there
};

/// Runs the windows [prefill + decode tokens each] as one batch of the scenario, whose workload has to be a generation
/// of `decode` tokens on carried data: the prefill is dense on the host, every further token is fed through the drive.
DriveForcing force_in_drive(const csdsim::scenario::Scenario& scenario, const csdsim::host::Decoder& decoder,
                            const std::vector<std::span<const csdsim::host::TokenId>>& windows, std::uint32_t prefill);

}  // namespace csd_model
