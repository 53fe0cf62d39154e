// Mooncake's JSON lines ("Mooncake", FAST 2025; github.com/kvcache-ai/Mooncake, FAST25-release/traces), with the
// members that replayers of such traces have added.
#include <fmt/format.h>

#include "base/json_document.h"
#include "base/text_file.h"
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

/// A request of a session waits for the one before, unless its line says when it arrives.
void add_times(const JsonFields& row, TraceBuilder& builder) {
  const auto &timestamp = row.find(kTimestamp), &session = row.find(kSessionId), &delay = row.find(kDelay);
  std::optional<std::uint32_t> before;
  if (session) before = builder.add_session(session->name("session_id"));
  if (timestamp) builder.add_arrival(timestamp->located(), trace_time(timestamp->located(), "timestamp", kMillisecond));
  if (delay && !before) delay->fail("a delay, but no earlier request of the same session_id to count from");
  if (before && (delay || !timestamp))
    builder.add_dependency(
        {.request = *before, .delay = delay ? trace_time(delay->located(), "delay", kMillisecond) : SimTime{}});
}

void add_request(const JsonFields& row, std::uint64_t line, TraceBuilder& builder) {
  builder.begin_request(line);
  builder.add_lengths(row.at(kInput).located(), "input_length", row.at(kOutput).located(), "output_length");
  add_times(row, builder);
  if (row.find(kPriority)) real_number(row.find(kPriority)->located(), "priority", -1e9, 1e9);
  builder.add_hash_ids(row.find(kHashIds), "hash_ids", row.object());
}

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options);
  builder.set_block_tokens(options.block_tokens.value_or(kBlockTokens));
  TextLines lines(path, kLongestTraceLine);
  JsonDocument document;
  JsonFields row(kFields);
  while (!builder.full()) {
    const std::optional<std::string_view> line = lines.next();
    if (!line) break;
    row.read(document.read(lines.file(), *line, lines.line()));
    add_request(row, lines.line(), builder);
  }
  return builder.finish();
}

}  // namespace

const TraceFormat kMooncakeFormat{
    "mooncake", "JSON lines of Mooncake: timestamp (ms), input_length, output_length, hash_ids of 512 tokens",
    [](std::string_view beginning) { return beginning.starts_with('{'); }, read};

}  // namespace csdsim::host
