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
  bool arrive = false;                  ///< at their own times, which ascend from 0; otherwise they are one batch
  bool share_prefixes = false;          ///< in the file; a generation does not use that
  std::vector<std::string> notes = {};  ///< about the file, for the user
};

/// Reads a serving trace of any format (host_runtime/traces/read_trace.h), at most `limit` requests. Prefixes are not
/// used, and a request that has an arrival waits for nothing else. Throws UserError "FILE:LINE:COLUMN: error: ..." as
/// read_serving_trace(), and "FILE:LINE: error: ..." for requests that generate no token, that have no arrival and wait
/// for others, or that are not in the order of their arrivals.
RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit = {});

/// Gives the requests the arrivals of a Poisson process: independent gaps with an exponential distribution of this
/// mean, also before the first one.
void set_poisson_arrivals(RequestTrace& trace, SimTime mean_gap, std::uint64_t seed);

}  // namespace csdsim::experiment
