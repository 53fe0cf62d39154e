#include "experiment/serving/serving_trace_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/rng.h"
#include "host_runtime/core/serving/generate_trace.h"
#include "host_runtime/traces/read_trace.h"

namespace csdsim::experiment {

namespace {

constexpr std::string_view kTraceFile = "workload.requests";

std::optional<host::ServingTrace> read_file(scenario::Checker& c, ServingWorkload& work) {
  if (!c.resolve(*work.requests, kTraceFile, "file")) return {};
  host::ServingTraceOptions options;
  options.first_requests = work.first_requests;
  options.most_positions = c.scenario().model.max_positions;
  options.on_note = [&c](const std::string& note) { c.note_at(kTraceFile, note); };
  try {
    return host::read_serving_trace(work.requests->path, options);
  } catch (const UserError& e) {
    c.error_at(kTraceFile, fmt::format("workload.requests: {}", e.what()));
    return {};
  }
}

std::optional<host::ServingTrace> generate(scenario::Checker& c, const GenerateConfig& config) {
  for (const host::TraceKind& kind : host::trace_kinds()) {
    if (kind.name != name_of(config.kind)) continue;
    host::TraceGeneration g = kind.defaults;
    const auto set = [](auto& value, const auto& given) {
      if (given) value = *given;
    };
    g.seed = c.scenario().seed;
    set(g.requests, config.requests);
    set(g.input_tokens, config.input_tokens);
    set(g.output_tokens, config.output_tokens);
    set(g.prefixes, config.prefixes);
    set(g.prefix_tokens, config.prefix_tokens);
    g.most_tokens = std::min(g.most_tokens, c.scenario().model.max_positions);
    set(g.most_tokens, config.most_tokens);
    set(g.clients, config.clients);
    set(g.block_tokens, config.block_tokens);
    set(g.gap, config.gap);
    set(g.delay, config.delay);
    if (config.turns) g.turns = config.turns->value();
    if (config.burst) g.burst = config.burst->value();
    try {
      return kind.generate(g);
    } catch (const UserError& e) {
      c.error_at("workload.generate", fmt::format("workload.generate: {}", e.what()));
      return {};
    }
  }
  throw InternalError("a kind of trace without a generator");
}

/// A file may be a part of a trace: the run begins when its first request arrives, not at the time 0 of the whole.
void begin_with_first(scenario::Checker& c, host::ServingTrace& trace) {
  std::optional<SimTime> first, last;
  for (const host::TracedRequest& r : trace.requests) {
    if (!r.timed) continue;
    first = std::min(first.value_or(r.arrival), r.arrival);
    last = std::max(last.value_or(r.arrival), r.arrival);
  }
  if (!first || first->ps == 0) return;
  for (host::TracedRequest& r : trace.requests)
    if (r.timed) r.arrival -= *first;
  if (*last - *first < *first)
    c.note_at(kTraceFile, fmt::format("workload.requests: the run begins with the first request, which arrives after "
                                      "{:.6g} s of the trace's time",
                                      first->seconds()));
}

/// Requests in the order of their arrivals, at those of the scenario. False after an error.
bool set_arrivals(scenario::Checker& c, const ServingWorkload& work, host::ServingTrace& trace) {
  Rng rng(c.scenario().seed, "arrivals");
  SimTime drawn;
  for (host::TracedRequest& r : trace.requests) {
    if (r.output == 0) {
      c.error_at(kTraceFile, fmt::format("{}:{}: a request that generates no token", trace.name, r.line));
      return false;
    }
    if (work.interarrival) {
      drawn += SimTime{std::llround(-std::log(1 - rng.unit()) * static_cast<double>(work.interarrival->ps))};
      r.set_arrival(drawn);
    } else if (r.timed) {
      r.arrival = SimTime{std::llround(static_cast<double>(r.arrival.ps) / work.speed.value())};
    }
  }
  return true;
}

}  // namespace

std::shared_ptr<const host::ServingTrace> serving_trace(scenario::Checker& c, ServingWorkload& work) {
  std::optional<host::ServingTrace> trace = work.requests ? read_file(c, work) : generate(c, *work.generate);
  if (!trace || !set_arrivals(c, work, *trace)) return nullptr;
  if (work.requests && !work.interarrival) begin_with_first(c, *trace);
  return std::make_shared<const host::ServingTrace>(std::move(*trace));
}

}  // namespace csdsim::experiment
