// Writes the life of each request of a run.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/plan/executor.h"

namespace csdsim::experiment {

/// Feed every operation of a whole run that ends. The requests of a batch arrive when the run starts.
class RequestMeter {
 public:
  explicit RequestMeter(const host::BatchLengths& workload) : workload_(workload) {}

  /// The run starts at `now`.
  void begin(SimTime now);
  void observe(const host::OperationRecord& record);

  /// With simulated times, arrivals included.
  const std::vector<host::Request>& requests() const { return requests_; }
  std::size_t ended() const { return ended_; }
  /// Tokens in the cache: the largest number at a time, and the mean over the time of the run.
  std::uint64_t most_tokens() const { return most_tokens_; }
  double mean_tokens() const;

 private:
  /// Returns the tokens that the sequence frees.
  std::uint64_t sampled(const host::StepSequence& sequence, SimTime now);
  void hold(std::uint64_t more, std::uint64_t less, SimTime now);

  host::BatchLengths workload_;
  std::vector<host::Request> requests_;
  SimTime start_, changed_;
  std::size_t ended_ = 0;     ///< requests
  std::uint64_t tokens_ = 0;  ///< in the cache now
  std::uint64_t most_tokens_ = 0;
  double token_seconds_ = 0;
};

}  // namespace csdsim::experiment
