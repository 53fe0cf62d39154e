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

/// Reads comma-separated values whose first line names the columns, in any order: input_tokens, output_tokens and, if
/// the requests arrive at their own times, arrival_s (seconds since the start of the run). The columns of the Azure LLM
/// inference traces are known as well (github.com/Azure/AzurePublicDataset; "Splitwise", ISCA 2024): ContextTokens,
/// GeneratedTokens and TIMESTAMP, a date and time of day that counts from the first request.
///
/// Reads at most `limit` requests. Throws UserError "FILE:LINE:COLUMN: error: ..." for unknown, missing or repeated
/// columns, for values that are no numbers or out of range (tokens from 1 to 16,777,216, times from 0), and for a
/// request that arrives before the one in the line above; UserError for a file without a request.
RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit = {});

/// Gives the requests the arrivals of a Poisson process: independent gaps with an exponential distribution of this
/// mean, also before the first one.
void set_poisson_arrivals(RequestTrace& trace, SimTime mean_gap, std::uint64_t seed);

}  // namespace csdsim::experiment
