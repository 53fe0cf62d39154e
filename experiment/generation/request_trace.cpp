#include "experiment/generation/request_trace.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::experiment {

RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit) {
  const host::ServingTrace read = host::read_serving_trace(file, {.first_requests = limit});
  RequestTrace trace;
  for (const host::TracedRequest& request : read.requests) {
    const auto fail = [&](std::string_view message) {
      throw UserError(fmt::format("{}:{}: error: {}", file, request.line, message));
    };
    if (request.output_tokens == 0) fail("a request that generates no token");
    if (request.arrival.has_value() != read.requests.front().arrival.has_value() ||
        (request.dependencies > 0 && !request.arrival))
      fail("a request without an arrival, which waits for another one");
    if (!trace.arrivals.empty() && *request.arrival < trace.arrivals.back())
      fail("arrives before the request above; sort the file by arrival");
    trace.lines.push_back(request.line);
    trace.input_tokens.push_back(request.input_tokens);
    trace.output_tokens.push_back(request.output_tokens);
    if (request.arrival) trace.arrivals.push_back(*request.arrival);
  }
  return trace;
}

std::vector<SimTime> poisson_arrivals(std::size_t requests, SimTime mean_gap, std::uint64_t seed) {
  Rng rng(seed, "arrivals");
  std::vector<SimTime> arrivals;
  SimTime at;
  for (std::size_t i = 0; i < requests; ++i) {
    at += SimTime{std::llround(-std::log(1 - rng.unit()) * static_cast<double>(mean_gap.ps))};
    arrivals.push_back(at);
  }
  return arrivals;
}

}  // namespace csdsim::experiment
