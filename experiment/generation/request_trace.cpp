#include "experiment/generation/request_trace.h"

#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::experiment {

RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit) {
  const host::ServingTrace trace = host::read_serving_trace(file, {.first_requests = limit});
  const auto refuse = [&file](const host::TracedRequest& request, const char* why) {
    throw UserError(fmt::format("{}:{}: error: {}", file, request.line, why));
  };
  RequestTrace requests{.requests = {}, .arrive = trace.requests.front().arrival.has_value()};
  for (const host::TracedRequest& read : trace.requests) {
    if (read.dependencies > 0 || read.session)
      refuse(read, "waits for another request; a generation runs requests that are independent");
    if (read.blocks > 0) refuse(read, "shares KV blocks; a generation runs requests that share nothing");
    if (read.output_tokens == 0) refuse(read, "generates no token");
    if (read.arrival.has_value() != requests.arrive) refuse(read, "some requests have an arrival and some have none");
    requests.requests.push_back({.id = SequenceId{static_cast<std::uint32_t>(requests.requests.size())},
                                 .arrival = read.arrival.value_or(SimTime{}),
                                 .prompt = read.input_tokens,
                                 .output = read.output_tokens,
                                 .line = read.line});
  }
  return requests;
}

void set_poisson_arrivals(RequestTrace& trace, SimTime mean_gap, std::uint64_t seed) {
  Rng rng(seed, "arrivals");
  SimTime at;
  for (host::Request& request : trace.requests)
    request.arrival = at += SimTime{std::llround(-std::log(1 - rng.unit()) * static_cast<double>(mean_gap.ps))};
  trace.arrive = true;
}

}  // namespace csdsim::experiment
