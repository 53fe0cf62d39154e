// Makes the result document of a block run.
#pragma once

#include <optional>
#include <string_view>

#include "contracts/drive_station.h"
#include "experiment/block_io/block_io.h"
#include "experiment/result.h"
#include "experiment/runner.h"

namespace csdsim::experiment {

/// A part of the drive, and the share of the measured time that it was busy.
struct BusyStation {
  DriveStation station{};
  double share = 0;
};
/// The busiest part. Page buffers do not count: they are in use while their pages wait for something else.
std::optional<BusyStation> busiest(const BlockIoOutcome& outcome);

/// The metrics of runs of block commands.
std::vector<MetricInfo> block_metrics();

/// `origin` describes the content of the drive before the first request.
scenario::RunResult block_result(const scenario::Scenario& scenario, const BlockIoOutcome& outcome,
                                 const WallClock& clock, std::string_view origin);

}  // namespace csdsim::experiment
