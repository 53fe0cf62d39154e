#include "experiment/generation/request_trace.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::experiment {

RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit) {
  std::vector<std::string> notes;
  const host::ServingTrace trace = host::read_serving_trace(
      file, {.first_requests = limit, .on_note = [&](const std::string& note) { notes.push_back(note); }});
  RequestTrace requests{.requests = {},
                        .arrive = trace.requests.front().timed,
                        .share_prefixes = trace.block_tokens.has_value(),
                        .notes = std::move(notes)};
  for (const host::TracedRequest& read : trace.requests) {
    const auto refuse = [&](std::string_view why) {
      throw UserError(fmt::format("{}:{}: error: {}", file, read.line, why));
    };
    if (read.output == 0) refuse("a request that generates no token");
    if (read.timed != requests.arrive || (read.dependencies > 0 && !read.timed))
      refuse("a request without an arrival, which waits for another one");
    if (requests.arrive && !requests.requests.empty() && read.arrival < requests.requests.back().arrival)
      refuse("arrives before the request above; sort the file by arrival");
    requests.requests.push_back(read);
    requests.requests.back().id = SequenceId{static_cast<std::uint32_t>(requests.requests.size() - 1)};
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
