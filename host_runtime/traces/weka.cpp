// Weka's sessions of coding agents (github.com/callanjfox/kv-cache-tester): a JSON text per session, in files of their
// own or one per line. Blocks may be counted without one that is partly filled.
#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

constexpr SimTime kSecond = SimTime::milliseconds(1000);
constexpr std::uint32_t kBlockTokens = 64;

enum Session : std::size_t { kId, kModels, kBlockSize, kScope, kToolTokens, kSystemTokens, kRequests };
const FieldNames kSession{{"id"},          {"models"},        {"block_size"}, {"hash_id_scope"},
                          {"tool_tokens"}, {"system_tokens"}, {"requests"}};

enum Field : std::size_t {
  kType,
  kTime,
  kInput,
  kOutput,
  kHashIds,
  kThinkTime,
  kModel,
  kStop,
  kApiTime,
  kTtft,
  kInputTypes,
  kOutputTypes
};
const FieldNames kRequest{{"type"},  {"t"},    {"in"},       {"out"},  {"hash_ids"},    {"think_time"},
                          {"model"}, {"stop"}, {"api_time"}, {"ttft"}, {"input_types"}, {"output_types"}};

enum Agent : std::size_t { kAgentType, kAgentTime, kAgentId, kAgentRequests };
const FieldNames kAgent{{"type"},          {"t"},           {"agent_id"},     {"requests"},
                        {"subagent_type"}, {"duration_ms"}, {"total_tokens"}, {"tool_use_count"},
                        {"status"},        {"models"},      {"tool_tokens"},  {"system_tokens"}};

/// The requests of one agent, one after another.
struct Stream {
  std::uint32_t clock = 0;
  std::string session;
  SimTime start{};                         ///< start of the clock in which its times count
  std::vector<std::uint32_t> waits_for{};  ///< what the next request follows
};

class WekaReader {
 public:
  WekaReader(const std::filesystem::path& path, const ServingTraceOptions& options)
      : builder_(path, options, HashMeaning::contents, kBlockTokens) {}

  void read_file(const std::filesystem::path& path) {
    for_each_record(path, builder_, [&](JsonValue record) { read_session(record); });
  }
  ServingTrace finish() { return builder_.finish(); }

 private:
  void read_session(JsonValue record) {
    JsonFields session(kSession);
    session.read(record);
    if (session.find(kBlockSize)) builder_.set_block_tokens(session.find(kBlockSize)->located(), "block_size");
    const std::string scope = session.name(kScope).value_or("local");
    if (scope != "local" && scope != "global")
      session.find(kScope)->fail(fmt::format("hash_id_scope: '{}' is not one of local, global", printable(scope)));
    scope_ = scope == "local" ? std::optional(sessions_) : std::nullopt;
    Stream stream{.clock = streams_++, .session = fmt::format("{}", sessions_++)};
    read_requests(session.at(kRequests), stream);
  }

  /// Times of an agent count from the start of the session or from its own; the first are never before its own.
  static SimTime time_of(JsonValue value, const Stream& stream) {
    const SimTime time = trace_time(value.located(), "t", kSecond);
    return time < stream.start ? stream.start + time : time;
  }

  void read_requests(JsonValue requests, Stream& stream) {
    std::vector<std::uint32_t> ends;  // indices of the last requests of agents that the last request has started
    requests.for_each("requests", [&](JsonValue record) {
      if (builder_.full()) return;
      if (is_agent(record)) {
        read_agent(record, stream, ends);
        return;
      }
      stream.waits_for.insert(stream.waits_for.end(), ends.begin(), ends.end());
      ends.clear();
      read_request(record, stream);
    });
    stream.waits_for.insert(stream.waits_for.end(), ends.begin(), ends.end());
  }

  static bool is_agent(JsonValue record) {
    bool agent = false;
    record.for_each_member("a request", [&](std::string_view key, JsonValue, JsonValue value) {
      if (key == "type") agent = value.string("type") == "subagent";
    });
    return agent;
  }

  /// An agent starts when the request before it has ended; the next request waits for the agent.
  void read_agent(JsonValue record, const Stream& parent, std::vector<std::uint32_t>& ends) {
    JsonFields agent(kAgent);
    agent.read(record);
    Stream stream{.clock = streams_++,
                  .session = fmt::format("{}/{}", parent.session, streams_),
                  .start = time_of(agent.at(kAgentTime), parent),
                  .waits_for = parent.waits_for};
    read_requests(agent.at(kAgentRequests), stream);
    if (stream.waits_for != parent.waits_for) ends.insert(ends.end(), stream.waits_for.begin(), stream.waits_for.end());
  }

  void read_request(JsonValue record, Stream& stream) {
    row_.read(record);
    const std::string type = row_.at(kType).name("type");
    if (type != "n" && type != "s")
      row_.at(kType).fail(fmt::format("type: '{}' is not one of n, s, subagent", printable(type)));
    builder_.begin_request(record.line());
    builder_.add_lengths(row_.at(kInput).located(), "in", row_.at(kOutput).located(), "out", 0);
    builder_.add_arrival(row_.at(kTime).located(), time_of(row_.at(kTime), stream), stream.clock);
    builder_.add_session(stream.session);
    const auto think = row_.located(kThinkTime);
    for (const std::uint32_t request : stream.waits_for)
      builder_.add_dependency(
          {.request = request, .delay = think ? trace_time(*think, "think_time", kSecond) : SimTime{}});
    stream.waits_for = {builder_.request_index()};
    builder_.add_hash_ids(row_.find(kHashIds), "hash_ids", row_.object(), scope_, true);
  }

  TraceBuilder builder_;
  JsonFields row_{kRequest};
  std::optional<std::uint32_t> scope_;
  std::uint32_t sessions_ = 0, streams_ = 0;
};

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  WekaReader reader(path, options);
  if (!std::filesystem::is_directory(path)) {
    reader.read_file(path);
    return reader.finish();
  }
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(path))
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  std::ranges::sort(files);
  if (files.empty()) throw UserError(fmt::format("{}: error: a folder without files *.json", path.string()));
  for (const std::filesystem::path& file : files) reader.read_file(file);
  return reader.finish();
}

}  // namespace

const TraceFormat kWekaFormat{
    "weka",
    "sessions of Weka, a JSON text each, or a folder of them: block_size, hash_id_scope, requests of t (s), in, out, "
    "hash_ids",
    [](std::string_view beginning) {
      return begins_json(beginning) && (has_key(beginning, "requests") || has_key(beginning, "block_size"));
    },
    read};

}  // namespace csdsim::host
