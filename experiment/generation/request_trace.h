// Requests of a generation run from a file: their lengths, and when they arrive.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/units.h"
#include "host_runtime/core/request.h"

namespace csdsim::experiment {

/// Requests in the order of the file.
struct RequestTrace {
  std::vector<host::Request> requests;
  bool arrive = false;  ///< at their own times, which ascend from 0; otherwise they are one batch
};

/// Reads a trace in a format of host_runtime/traces/read_trace.h: the project's own comma-separated values, those of
/// Azure, and others. Reads at most `limit` requests. Throws UserError, located, for what the format does not allow,
/// and for requests that wait for others, share KV blocks or generate nothing.
RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit = {});

/// Gives the requests the arrivals of a Poisson process: independent gaps with an exponential distribution of this
/// mean, also before the first one.
void set_poisson_arrivals(RequestTrace& trace, SimTime mean_gap, std::uint64_t seed);

}  // namespace csdsim::experiment
