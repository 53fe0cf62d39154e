// Runs block commands: the drive as a plain SSD.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/histogram.h"
#include "contracts/request_stages.h"
#include "csd_model/energy.h"
#include "csd_model/station_times.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/block_io/requests/block_request.h"
#include "experiment/block_io/requests/time_series.h"
#include "experiment/measure/power_outcome.h"
#include "ftl/core/write_work.h"
#include "platform/platform_params.h"

namespace csdsim::report {
class RunTrace;
}

namespace csdsim::experiment {

struct BlockIoSetup {
  platform::PlatformParams platform;
  /// Makes the requests of a drive that exports `capacity` bytes.
  std::function<std::unique_ptr<workload::RequestSource>(Bytes capacity)> source;
  std::optional<std::uint32_t> queue_depth = 32;  ///< requests in flight, over all queues; unset: open loop
  SimTime think_time;                             ///< closed loop: from a completion to the next request
  std::uint32_t streams = 1;                      ///< closed loop: the streams share the queue depth evenly
  std::size_t flows = 0;                          ///< streams that are measured apart
  std::vector<std::uint32_t> flow_depths;         ///< closed loop with flows: of each of them
  std::uint64_t warmup = 0;                       ///< number of first requests that are not measured
  bool measure_from_start = false;                ///< without warm-up: also the time before the first request
  std::uint64_t requests = ~std::uint64_t{0};     ///< maximum number of measured requests
  std::optional<SimTime> duration;                ///< length of the measured interval; no request is submitted after it
  std::uint16_t queues = 1;                       ///< number of queues used
  std::uint16_t first_queue = 1;                  ///< first queue used
  bool queue_by_stream = false;                   ///< true: stream i uses queue i mod queues; false: round robin
  Fill fill = Fill::random;                       ///< order in which the source's footprint is filled before the run
  double overwrites = 0;                          ///< random overwrites of the filled footprint, in no simulated time
  std::uint64_t seed = 1;
  std::uint64_t lose_completion = 0;  ///< fault: the host loses the completion of this request, counted from 1
};

/// Measurements of one kind of request.
struct KindOutcome {
  Histogram latency_ps;  ///< from submission to completion on the host
  Bytes bytes;
  /// Sums in ps, which add up to the sum of the latencies. They have 128 bits because 64 bits hold only 106 days.
  std::array<__int128, kRequestStages> stages_ps{};
};

/// Measurements of one flow.
struct FlowOutcome {
  Histogram latency_ps;
  Bytes bytes;
};

struct BlockIoOutcome {
  SimTime duration;      ///< measured interval: from its first submission, or the start, to its last completion
  Histogram latency_ps;  ///< all measured requests
  std::array<KindOutcome, workload::kRequestKinds> kinds;
  std::vector<FlowOutcome> flows;  ///< by stream; empty unless these are measured apart
  workload::TimeSeries series;     ///< measured requests, from the start of the measured interval
  std::uint64_t issued = 0;        ///< warm-up included
  std::uint64_t completed = 0;     ///< warm-up included
  std::uint64_t failed = 0;        ///< completed with an error status, warm-up included
  std::uint64_t peak_in_flight = 0;
  std::string first_failure;
  ftl::WriteWork writes;                    ///< planned in the measured interval
  double programmed_per_byte = 0;           ///< bytes of them per byte that the host wrote; 0 without writes
  csd_model::DriveTotals totals;            ///< in the measured interval
  nlohmann::ordered_json drive_statistics;  ///< in the whole run
  double channel_utilization = 0;           ///< mean share of the measured time that a channel was occupied
  csd_model::StationTimes stations;         ///< in the measured interval
  std::optional<PowerOutcome> power;        ///< where the power failed
  std::uint64_t blocks_checked = 0;         ///< likewise: whose content was compared with what it may be
};

/// Progress callback: `done` of `total` units of `what`.
using BlockIoProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

/// Runs block commands in timing mode: fills the drive instantly, then measures, and writes to `trace`. Throws
/// UserError for a drive that is too small and for errors of the source.
BlockIoOutcome run_block_io(const BlockIoSetup& setup, const BlockIoProgress& progress = {},
                            report::RunTrace* trace = nullptr);

}  // namespace csdsim::experiment
