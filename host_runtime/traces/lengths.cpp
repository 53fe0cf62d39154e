// The project's own format: comma-separated values with the lengths of requests, their arrivals and their sessions.
#include "base/csv_records.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kInput, kOutput, kArrival, kSession, kDelay };
const FieldNames kFields{{"input_tokens"}, {"output_tokens"}, {"arrival_s"}, {"session"}, {"delay_s"}};

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::prefix, 1);
  CsvRecords row(path, kFields, {kInput, kOutput});
  while (!builder.full() && row.next()) {
    builder.begin_request(row.line());
    builder.add_lengths(row.at(kInput), "input_tokens", row.at(kOutput), "output_tokens");
    const auto session = row.find(kSession);
    builder.add_times(session ? std::optional(std::string(session->text)) : std::nullopt, row.find(kArrival),
                      "arrival_s", row.find(kDelay), "delay_s", SimTime::milliseconds(1000));
  }
  return builder.finish();
}

}  // namespace

const TraceFormat kLengthsFormat{
    "csv", "comma-separated input_tokens, output_tokens and, where wanted, arrival_s, session, delay_s",
    [](std::string_view) { return true; }, read};

}  // namespace csdsim::host
