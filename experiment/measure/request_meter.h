// Counts the requests of a run that have ended, and the tokens in the cache.
#pragma once

#include <cstdint>
#include <span>

#include "host_runtime/core/plan/executor.h"
#include "host_runtime/core/request.h"

namespace csdsim::experiment {

/// Feed every operation of a whole run that ends.
class RequestMeter {
 public:
  /// The run starts at `now`.
  void begin(SimTime now) { start_ = changed_ = now; }
  /// `requests`: those of the run, after the operation.
  void observe(const host::OperationRecord& record, std::span<const host::Request> requests);

  std::size_t ended() const { return ended_; }
  /// Tokens in the cache: the largest number at a time, and the mean over the time of the run.
  std::uint64_t most_tokens() const { return most_tokens_; }
  double mean_tokens() const;

 private:
  SimTime start_, changed_;
  std::size_t ended_ = 0;     ///< requests
  std::uint64_t tokens_ = 0;  ///< in the cache now
  std::uint64_t most_tokens_ = 0;
  double token_seconds_ = 0;
};

}  // namespace csdsim::experiment
