// The project's own format: comma-separated values with the lengths of requests, their arrivals and their sessions.
#include <fmt/format.h>

#include <algorithm>

#include "base/csv_records.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kInput, kOutput, kArrival, kSession, kDelay, kPriority };
const FieldNames kFields{{"input_tokens"}, {"output_tokens"}, {"arrival_s"}, {"session"}, {"delay_s"}, {"priority"}};
constexpr SimTime kSecond = SimTime::milliseconds(1000);

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::prefix, 1);
  CsvRecords row(path, kFields, {kInput, kOutput});
  while (!builder.full() && row.next()) {
    builder.begin_request(row.line());
    builder.add_lengths(row.at(kInput), "input_tokens", row.at(kOutput), "output_tokens");
    const auto session = row.find(kSession);
    builder.add_times(session ? std::optional(std::string(session->text)) : std::nullopt, row.find(kArrival),
                      "arrival_s", row.find(kDelay), "delay_s", kSecond);
    builder.add_priority(row.find(kPriority));
  }
  return builder.finish(builder.full() ? "" : row.torn_note());
}

std::string write(const ServingTrace& trace) {
  const bool sessions =
      std::ranges::any_of(trace.requests, [](const TracedRequest& r) { return r.session.has_value(); });
  const bool priorities = std::ranges::any_of(trace.requests, [](const TracedRequest& r) { return r.priority > 0; });
  std::string text = fmt::format("arrival_s,input_tokens,output_tokens{}{}\n", sessions ? ",session,delay_s" : "",
                                 priorities ? ",priority" : "");
  for (const TracedRequest& r : trace.requests) {
    text += fmt::format("{},{},{}", r.timed ? time_text(r.arrival, kSecond) : "", r.prompt, r.output);
    const auto before = dependency_of(trace, r, "csv");
    if (sessions)
      text += fmt::format(",{},{}", r.session ? fmt::format("{}", *r.session) : "",
                          before ? time_text(before->delay, kSecond) : "");
    if (priorities) text += fmt::format(",{}", r.priority);
    text += '\n';
  }
  return text;
}

}  // namespace

const TraceFormat kLengthsFormat{
    "csv", "comma-separated input_tokens, output_tokens and, where wanted, arrival_s, session, delay_s, priority",
    [](std::string_view) { return true; }, read, write};

}  // namespace csdsim::host
