// Makes the result document of a block run.
#pragma once

#include <string_view>

#include "experiment/block_io/block_io.h"
#include "experiment/result.h"
#include "experiment/runner.h"

namespace csdsim::experiment {

/// `origin` describes the content of the drive before the first request.
scenario::RunResult block_result(const scenario::Scenario& scenario, const BlockIoOutcome& outcome,
                                 const WallClock& clock, std::string_view origin);

}  // namespace csdsim::experiment
