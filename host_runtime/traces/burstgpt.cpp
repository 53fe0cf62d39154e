// BurstGPT's comma-separated values (github.com/HPMLL/BurstGPT). A request that has failed has no response.
#include <fmt/format.h>

#include <cmath>

#include "base/csv_records.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kTimestamp, kInput, kOutput, kTotal, kSession, kModel, kLogType, kElapsed };
const FieldNames kFields{{"Timestamp"},  {"Request tokens"}, {"Response tokens"}, {"Total tokens"},
                         {"Session ID"}, {"Model"},          {"Log Type"},        {"Elapsed time"}};
constexpr double kLatest = 1e10;  // seconds of a clock that may have begun long before

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::prefix, 1);
  CsvRecords row(path, kFields, {kTimestamp, kInput, kOutput});
  std::optional<double> first;
  while (!builder.full() && row.next()) {
    builder.begin_request(row.line());
    builder.add_lengths(row.at(kInput), "Request tokens", row.at(kOutput), "Response tokens", 0);
    const TracedRequest& request = builder.request();
    if (const auto total = row.find(kTotal)) {
      const std::uint64_t sum = request.prompt + request.output;
      if (whole_number(*total, "Total tokens", 0, 2 * kMostTraceTokens) != sum)
        total->fail(fmt::format("Total tokens: {}, but request and response have {} together", total->text, sum));
    }
    const double at = real_number(row.at(kTimestamp), "Timestamp", 0, kLatest);
    if (!first) first = at;
    if (at - *first > kLatestTraceSecond)
      row.at(kTimestamp).fail(fmt::format("Timestamp: more than {:.0f} s after the first one", kLatestTraceSecond));
    builder.add_arrival(row.at(kTimestamp), SimTime{std::llround((at - *first) * 1e12)});
    if (const auto session = row.find(kSession)) builder.add_session(std::string(session->text));
  }
  return builder.finish(builder.full() ? "" : row.torn_note());
}

/// Whether the first line names this column.
bool recognises(std::string_view beginning) {
  return beginning.substr(0, beginning.find('\n')).find("Request tokens") != beginning.npos;
}

std::string write(const ServingTrace& trace) {
  require_arrivals(trace, "burstgpt");
  std::string text = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n";
  for (const TracedRequest& r : trace.requests)
    text += fmt::format("{},ChatGPT,{},{},{},Conversation log\n", time_text(r.arrival, SimTime::milliseconds(1000)),
                        r.prompt, r.output, r.prompt + r.output);
  return text;
}

}  // namespace

const TraceFormat kBurstGptFormat{
    "burstgpt",
    "comma-separated values of BurstGPT: Timestamp (s), Model, Request tokens, Response tokens, Total tokens, Log Type",
    recognises, read, write};

}  // namespace csdsim::host
