// From the outcome of a block run to its result document.
#pragma once

#include <string_view>

#include "csd_model/runner/block_io.h"
#include "csd_model/runner/result.h"
#include "csd_model/runner/runner.h"

namespace csd_model {

/// `origin` says what the drive held before the first request.
RunResult block_result(const csdsim::scenario::Scenario& scenario, const BlockIoOutcome& outcome,
                       const WallClock& clock, std::string_view origin);

}  // namespace csd_model
