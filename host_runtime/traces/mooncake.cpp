// Mooncake's JSON lines ("Mooncake", FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release/traces), with the
// members that replayers of such traces have added.
#include <fmt/format.h>

#include <string>
#include <unordered_set>

#include "base/text.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kTimestamp, kInput, kOutput, kHashIds, kRequestId, kSessionId, kDelay, kPriority };
const FieldNames kFields{{"timestamp", "created_time"},
                         {"input_length", "input_tokens"},
                         {"output_length", "output_tokens"},
                         {"hash_ids"},
                         {"request_id"},
                         {"session_id"},
                         {"delay", "delay_ms"},
                         {"priority"}};
constexpr std::uint32_t kBlockTokens = 512;
constexpr SimTime kMillisecond = SimTime::milliseconds(1);

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::prefix, kBlockTokens);
  JsonFields row(kFields);
  std::unordered_set<std::string> requests;
  for_each_record(path, builder, [&](JsonValue record) {
    row.read(record);
    builder.begin_request(record.line());
    if (const auto name = row.name(kRequestId); name && !requests.insert(*name).second)
      row.at(kRequestId).fail(fmt::format("request_id: {} is in the file twice", printable(*name)));
    builder.add_lengths(row.at(kInput).located(), "input_length", row.at(kOutput).located(), "output_length");
    builder.add_times(row.name(kSessionId), row.located(kTimestamp), "timestamp", row.located(kDelay), "delay",
                      kMillisecond);
    builder.add_priority(row.located(kPriority));
    builder.add_hash_ids(row.find(kHashIds), "hash_ids", row.object());
  });
  return builder.finish();
}

std::string write(const ServingTrace& trace) {
  std::string text;
  for (const TracedRequest& r : trace.requests) {
    text += "{";
    if (r.session) text += fmt::format("\"session_id\": \"{}\", ", *r.session);
    if (r.timed) text += fmt::format("\"timestamp\": {}, ", time_text(r.arrival, kMillisecond));
    if (const auto before = dependency_of(trace, r, "mooncake"))
      text += fmt::format("\"delay\": {}, ", time_text(before->delay, kMillisecond));
    text += fmt::format("\"input_length\": {}, \"output_length\": {}", r.prompt, r.output);
    if (r.priority > 0) text += fmt::format(", \"priority\": {}", r.priority);
    if (trace.block_tokens) text += fmt::format(", \"hash_ids\": {}", id_list(trace.blocks_of(r)));
    text += "}\n";
  }
  return text;
}

}  // namespace

const TraceFormat kMooncakeFormat{
    "mooncake", "JSON lines of Mooncake: timestamp (ms), input_length, output_length, hash_ids of 512 tokens",
    [](std::string_view beginning) { return begins_json(beginning); }, read, write};

}  // namespace csdsim::host
