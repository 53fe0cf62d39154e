// From the outcome of a block run to its result document.
#pragma once

#include <string_view>

#include "experiment/block_io/block_io.h"
#include "experiment/result.h"
#include "experiment/runner.h"

namespace csdsim::experiment {

/// `origin` says what the drive held before the first request.
scenario::RunResult block_result(const scenario::Scenario& scenario, const BlockIoOutcome& outcome,
                                 const WallClock& clock, std::string_view origin);

}  // namespace csdsim::experiment
