// Block commands in a closed loop: the drive as a plain SSD.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/histogram.h"
#include "base/rng.h"
#include "csd_model/platform/platform.h"

namespace csd_model {

struct BlockIoSetup {
  PlatformConfig platform;
  csdsim::Bytes request_size;      ///< a multiple of the logical block
  std::uint32_t queue_depth = 32;  ///< requests outstanding, over all queues
  std::uint64_t requests = 0;
  double working_set = 0.8;  ///< share of the exported capacity
  double read_fraction = 1;
  bool sequential = false;
  std::uint64_t seed = 1;
};

struct BlockIoOutcome {
  csdsim::SimTime duration;      ///< from the first submission to the last completion
  csdsim::Histogram latency_ps;  ///< submission to completion, as the host sees them
  std::uint64_t issued = 0;
  std::uint64_t completed = 0;
  std::uint64_t failed = 0;  ///< completed with an error status
  std::string first_failure;
  double write_amplification = 1;
  DriveCounters counters;
  nlohmann::ordered_json drive_statistics;
  double channel_utilization = 0;  ///< mean share of time that a channel was occupied
};

/// Timing only: the drive is filled instantly, then measured. `progress` gets requests done and their total.
BlockIoOutcome run_block_io(const BlockIoSetup& setup,
                            const std::function<void(std::uint64_t, std::uint64_t)>& progress = {});

}  // namespace csd_model
