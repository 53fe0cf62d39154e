// Completions over time, in a bounded number of buckets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/units.h"

namespace csdsim::experiment::workload {

/// Counts completions in buckets of equal width. The width doubles when more than kMaxBuckets buckets would be needed,
/// so a long run uses between half and all of them.
class TimeSeries {
 public:
  static constexpr std::size_t kMaxBuckets = 256;

  struct Bucket {
    std::uint64_t requests = 0;
    std::uint64_t bytes = 0;
    SimTime latency_sum{};
    SimTime latency_max{};
  };

  /// Adds a completion at time `at` since the start.
  void add(SimTime at, Bytes bytes, SimTime latency);

  SimTime width() const { return width_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }

  /// One row per bucket: start_s, seconds, requests, iops, bandwidth_bytes_per_s, latency_mean_ns, latency_max_ns. The
  /// last bucket ends at `end`. Buckets without completions have empty latencies.
  std::string to_csv(SimTime end) const;

 private:
  void look_up(SimTime at);

  SimTime width_ = SimTime::microseconds(1);
  std::vector<Bucket> buckets_;
  // The bucket of the last completion, and its interval.
  std::size_t current_ = 0;
  SimTime begin_{};
  SimTime end_{};
};

}  // namespace csdsim::experiment::workload
