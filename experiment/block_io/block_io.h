// Block commands: the drive as a plain SSD.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/histogram.h"
#include "base/request_stages.h"
#include "csd_model/energy.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/requests/request.h"
#include "experiment/requests/time_series.h"
#include "platform/platform.h"

namespace csdsim::experiment {

struct BlockIoSetup {
  platform::PlatformParams platform;
  /// Makes the requests of a drive that exports `capacity` bytes.
  std::function<std::unique_ptr<workload::RequestSource>(Bytes capacity)> source;
  std::optional<std::uint32_t> queue_depth = 32;  ///< requests outstanding, over all queues; unset: as they arrive
  SimTime think_time;                             ///< with a queue depth: from a completion to the next request
  std::uint32_t streams = 1;                      ///< with a queue depth: they share it evenly
  std::uint64_t warmup = 0;                       ///< first requests, which are not measured
  std::uint64_t requests = ~std::uint64_t{0};     ///< most to be measured
  std::optional<SimTime> duration;                ///< of the measured stretch: no request is submitted after it
  std::uint16_t queues = 1;                       ///< that are used
  std::uint16_t first_queue = 1;                  ///< of these
  bool queue_by_stream = false;                   ///< stream i on queue i mod queues, or requests in turn
  Fill fill = Fill::random;                       ///< all of the source's footprint is written so
  double overwrites = 0;                          ///< of what was filled, at random, without taking time
  std::uint64_t seed = 1;
  std::uint64_t lose_completion = 0;  ///< fault: number of the request, from 1, whose completion the host loses
};

/// Requests of one kind.
struct KindOutcome {
  Histogram latency_ps;  ///< submission to completion, as the host sees them
  Bytes bytes;
  /// Sums in ps, together that of the latencies; 64 bits hold 106 days, less than many requests wait in all.
  std::array<__int128, kRequestStages> stages_ps{};
};

struct BlockIoOutcome {
  SimTime duration;      ///< of the measured stretch: from its first submission to its last completion
  Histogram latency_ps;  ///< of all measured requests
  std::array<KindOutcome, workload::kRequestKinds> kinds;
  workload::TimeSeries series;  ///< of measured requests, from the start of the stretch
  std::uint64_t issued = 0;     ///< warm-up included
  std::uint64_t completed = 0;  ///< warm-up included
  std::uint64_t failed = 0;     ///< completed with an error status, warm-up included
  std::uint64_t peak_in_flight = 0;
  std::string first_failure;
  double write_amplification = 1;           ///< of the measured stretch
  csd_model::DriveTotals totals;            ///< of the measured stretch
  nlohmann::ordered_json drive_statistics;  ///< of the whole run
  double channel_utilization = 0;           ///< mean share of the measured time that a channel was occupied
};

/// Says how far a run is: `done` of `total` of `what`.
using BlockIoProgress = std::function<void(std::string_view what, std::uint64_t done, std::uint64_t total)>;

/// Timing only: the drive is filled instantly, then measured. UserError for a drive that is too small and for what the
/// source cannot make.
BlockIoOutcome run_block_io(const BlockIoSetup& setup, const BlockIoProgress& progress = {});

}  // namespace csdsim::experiment
