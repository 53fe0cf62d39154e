// Times of requests, and figures of their distribution.
#pragma once

#include <cstddef>
#include <numeric>
#include <optional>
#include <vector>

#include "host_runtime/core/request.h"

namespace csdsim::experiment {

/// In seconds; nothing where a request has no such time.
using RequestTime = std::optional<double>;

inline RequestTime latency(const host::Request& r) { return (r.end - r.arrival).seconds(); }
inline RequestTime ttft(const host::Request& r) { return (r.first_token - r.arrival).seconds(); }
inline RequestTime queueing(const host::Request& r) { return (r.admitted - r.arrival).seconds(); }
/// Mean time of the further tokens.
inline RequestTime tpot(const host::Request& r) {
  if (r.generated < 2) return std::nullopt;
  return (r.end - r.first_token).seconds() / (r.generated - 1);
}

inline RequestTime mean(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

/// The smallest of `sorted` that at least `percent` % of them do not exceed (nearest rank).
inline RequestTime percentile(const std::vector<double>& sorted, std::size_t percent) {
  if (sorted.empty()) return std::nullopt;
  return sorted[(sorted.size() * percent + 99) / 100 - 1];
}

}  // namespace csdsim::experiment
