// Stores are left out while they take too long.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace csdsim::host {

/// Drops stores while the mean latency of the last stores is above `on`, until it is below `off` (vLLM's offloading
/// connector: 1.0 s and 0.5 s). While stores are dropped none ends, so that a store is let through now and then, which
/// tells whether the tier has recovered.
class BackPressure {
 public:
  struct Config {
    SimTime on = SimTime::milliseconds(1000), off = SimTime::milliseconds(500);
    std::uint32_t stores = 16;  ///< whose mean counts
    std::uint32_t probe = 16;   ///< while stores are dropped, one in so many is let through
  };

  explicit BackPressure(const Config& config) : config_(config), latencies_(config.stores) {}

  /// Whether the next store is let through.
  bool admits() {
    if (!dropping_) return true;
    return ++since_probe_ % config_.probe == 0;
  }

  void stored(SimTime latency) {
    sum_ += latency - latencies_[next_];
    latencies_[next_] = latency;
    next_ = (next_ + 1) % latencies_.size();
    if (known_ < latencies_.size()) ++known_;
    const SimTime mean{sum_.ps / static_cast<std::int64_t>(known_)};
    if (mean > config_.on) dropping_ = true;
    if (mean < config_.off) dropping_ = false;
  }

  bool dropping() const { return dropping_; }

 private:
  Config config_;
  std::vector<SimTime> latencies_;
  std::size_t next_ = 0, known_ = 0;
  SimTime sum_;
  bool dropping_ = false;
  std::uint64_t since_probe_ = 0;
};

}  // namespace csdsim::host
