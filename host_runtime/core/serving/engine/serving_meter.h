// Measures a serving run.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "base/histogram.h"
#include "host_runtime/core/serving/engine/served_sequence.h"

namespace csdsim::host {

/// A request that has ended.
struct ServedRequest {
  Request life;
  std::uint32_t instance = 0;
  std::uint64_t hit_gpu = 0, hit_host = 0, hit_drives = 0;  ///< tokens
  std::uint32_t preemptions = 0;
  SimTime load_began, loaded_at;
  bool has_loaded = false;
  std::vector<RequestSpan> spans;  ///< its life, without gaps
};

/// How many requests are in each state, and how many blocks are taken, at a moment. Sums over all engines.
struct ServingLoad {
  std::uint64_t waiting = 0, loading = 0, running = 0, remaining = 0;
  std::uint64_t gpu_blocks = 0;  ///< taken
  std::uint64_t host_blocks = 0, drive_blocks = 0;
  bool operator==(const ServingLoad&) const = default;
};

class ServingMeter {
 public:
  struct Sample {
    SimTime at;
    ServingLoad load;
  };
  /// What engines add to.
  struct Counts {
    std::uint64_t steps = 0;
    std::uint64_t preemptions = 0, swaps = 0;
    std::uint64_t prompt_tokens = 0;    ///< prompt tokens of requests that have begun
    std::uint64_t computed_tokens = 0;  ///< all that were computed, those that were computed before included
    std::uint64_t passed_over = 0;      ///< blocks that a tier had and that were computed all the same
    std::uint64_t lost_tokens = 0;      ///< tokens whose K and V a tier could not read back
    SimTime gpu_busy;                   ///< summed over the GPUs
    SimTime gpu_steps;                  ///< time of steps, in which the GPU may wait for loads
  };

  Counts counts;

  void token(ServedSequence& sequence, SimTime now) {
    if (sequence.last_token) itl_ps_.add(static_cast<std::uint64_t>((now - *sequence.last_token).ps));
    sequence.last_token = now;
  }
  void ended(ServedSequence& sequence);
  /// A change of the load. The samples that are kept are thinned out so that about `kSamples` remain, evenly in time.
  void load(SimTime now, const ServingLoad& load);
  void finish(SimTime now);

  const std::vector<ServedRequest>& requests() const { return requests_; }
  const Histogram& itl_ps() const { return itl_ps_; }
  const std::vector<Sample>& samples() const { return samples_; }
  /// Integral of the requests in the system over time, in request-seconds.
  double requests_seconds() const { return in_system_seconds_; }
  double running_seconds() const { return running_seconds_; }

 private:
  static constexpr std::size_t kSamples = 1000;
  void thin();

  std::vector<ServedRequest> requests_;
  Histogram itl_ps_;
  std::vector<Sample> samples_;
  SimTime interval_{SimTime::milliseconds(1)};  ///< between samples
  ServingLoad last_;
  SimTime last_at_;
  double in_system_seconds_ = 0, running_seconds_ = 0;
};

}  // namespace csdsim::host
