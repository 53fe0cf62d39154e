// Requests of a generation run from a file: their lengths, and when they arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"

namespace csdsim::experiment {

/// All lists have one entry per request, in the order of the file; `arrivals` is empty if the file states none.
struct RequestTrace {
  std::vector<std::uint32_t> input_tokens;
  std::vector<std::uint32_t> output_tokens;
  std::vector<SimTime> arrivals;     ///< ascending, from 0
  std::vector<std::uint64_t> lines;  ///< of the file, from 1

  std::size_t size() const { return lines.size(); }
  bool operator==(const RequestTrace&) const = default;
};

/// Reads a serving trace of any format (host_runtime/traces/read_trace.h), at most `limit` requests. Prefixes are not
/// used, and a request that has an arrival waits for nothing else. Throws UserError "FILE:LINE:COLUMN: error: ..." as
/// read_serving_trace(), and "FILE:LINE: error: ..." for requests that generate no token, that have no arrival and wait
/// for others, or that are not in the order of their arrivals.
RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit = {});

/// Arrivals of a Poisson process: independent gaps with an exponential distribution of this mean, also before the first
/// one.
std::vector<SimTime> poisson_arrivals(std::size_t requests, SimTime mean_gap, std::uint64_t seed);

}  // namespace csdsim::experiment
