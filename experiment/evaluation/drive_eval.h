// Runs teacher forcing with decoding attention in the drive.
#pragma once

#include <span>
#include <vector>

#include "host_runtime/core/eval/evaluation.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

struct DriveForcing {
  std::vector<std::vector<host::Prediction>> predictions;  ///< [window][decode - 1]
  std::uint64_t page_ops = 0;
  std::string failure;  ///< set when a page read differed from the page written
};

/// Runs the windows [prefill + decode tokens each] as one batch of the scenario. Its workload must be a generation of
/// `decode` tokens with carried data. The host prefills densely; every further token is fed through the drive.
DriveForcing force_in_drive(const scenario::Scenario& scenario, const host::Decoder& decoder,
                            const std::vector<std::span<const host::TokenId>>& windows, std::uint32_t prefill);

}  // namespace csdsim::experiment
