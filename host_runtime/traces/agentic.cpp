// Agentic Mooncake, version 2: JSON lines behind a header, requests that wait for others.
#include <fmt/format.h>

#include <unordered_map>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

constexpr std::string_view kSchema = "dynamo.agentic_mooncake";
constexpr SimTime kMillisecond = SimTime::milliseconds(1);

enum Header : std::size_t { kSchemaName, kVersion, kBlockSize, kScope, kSource };
const FieldNames kHeader{{"schema"}, {"version"}, {"block_size"}, {"hash_id_scope"}, {"source"}};

enum Field : std::size_t {
  kRequest,
  kPlay,
  kSession,
  kModel,
  kInput,
  kOutput,
  kHashIds,
  kNotBefore,
  kDependencies,
  kPriority,
  kPlayOrdinal,
  kApiTime
};
const FieldNames kFields{{"request_id"},
                         {"play_id"},
                         {"session_id"},
                         {"model"},
                         {"input_length", "input_tokens"},
                         {"output_length", "output_tokens"},
                         {"hash_ids"},
                         {"not_before_ms"},
                         {"dependencies"},
                         {"priority"},
                         {"source_play_ordinal"},
                         {"recorded_api_time_ms"}};

enum Dependency : std::size_t { kOn, kTrigger, kDelay, kRelation };
const FieldNames kDependency{{"request_id"}, {"trigger"}, {"delay_ms"}, {"relation"}};

/// The place of a text among those that a member may have. Throws UserError, located.
std::size_t one_of(const JsonValue& value, std::string_view what, const std::vector<std::string>& known) {
  const std::string_view text = value.string(what);
  for (std::size_t i = 0; i < known.size(); ++i)
    if (known[i] == text) return i;
  value.fail(fmt::format("{}: '{}' is not one of {}", what, printable(text), join(known)));
}

class AgenticReader {
 public:
  AgenticReader(const std::filesystem::path& path, const ServingTraceOptions& options)
      : builder_(path, options, HashMeaning::prefix, 1) {
    for_each_record(path, builder_, [&](JsonValue record) { has_header_ ? read_row(record) : read_header(record); });
  }
  ServingTrace finish() { return builder_.finish(); }

 private:
  void read_header(JsonValue record) {
    JsonFields header(kHeader);
    header.read(record);
    one_of(header.at(kSchemaName), "schema", {std::string(kSchema)});
    whole_number(header.at(kVersion).located(), "version", 2, 2);
    builder_.set_block_tokens(header.at(kBlockSize).located(), "block_size");
    is_local_ = one_of(header.at(kScope), "hash_id_scope", {"global", "local"}) == 1;
    has_header_ = true;
  }

  void read_row(JsonValue record) {
    row_.read(record);
    builder_.begin_request(record.line());
    builder_.add_lengths(row_.at(kInput).located(), "input_length", row_.at(kOutput).located(), "output_length");
    const std::string play = row_.at(kPlay).name("play_id");
    const std::uint32_t number = plays_.try_emplace(play, static_cast<std::uint32_t>(plays_.size())).first->second;
    const LocatedValue not_before = row_.at(kNotBefore).located();
    builder_.add_arrival(not_before, trace_time(not_before, "not_before_ms", kMillisecond), number);
    builder_.add_priority(row_.located(kPriority));
    builder_.add_session(fmt::format("{}/{}", number, row_.at(kSession).name("session_id")));
    if (row_.find(kDependencies))
      row_.find(kDependencies)->for_each("dependencies", [&](JsonValue each) { read_dependency(each); });
    const std::string name = row_.at(kRequest).name("request_id");
    if (!requests_.try_emplace(name, builder_.request_index()).second)
      row_.at(kRequest).fail(fmt::format("request_id: {} is in the file twice", printable(name)));
    builder_.add_hash_ids(row_.find(kHashIds), "hash_ids", row_.object(),
                          is_local_ ? std::optional(number) : std::nullopt);
  }

  void read_dependency(JsonValue record) {
    dependency_.read(record);
    const std::string name = dependency_.at(kOn).name("request_id");
    const auto found = requests_.find(name);
    if (found == requests_.end())
      dependency_.at(kOn).fail(fmt::format("request_id: no request '{}' stands above", printable(name)));
    const bool completion = one_of(dependency_.at(kTrigger), "trigger", {"dispatch", "completion"}) == 1;
    one_of(dependency_.at(kRelation), "relation", {"sequence", "spawn", "join", "replay_barrier"});
    builder_.add_dependency(
        {.request = found->second,
         .trigger = completion ? TraceDependency::Trigger::completion : TraceDependency::Trigger::dispatch,
         .delay = trace_time(dependency_.at(kDelay).located(), "delay_ms", kMillisecond)});
  }

  TraceBuilder builder_;
  JsonFields row_{kFields}, dependency_{kDependency};
  bool has_header_ = false, is_local_ = false;
  std::unordered_map<std::string, std::uint32_t> requests_, plays_;
};

/// One play, so that all its sessions share their blocks.
std::string write(const ServingTrace& trace) {
  if (!trace.block_tokens) throw UserError("agentic: the requests have no KV blocks, which the format needs");
  std::string text = fmt::format(
      "{{\"schema\": \"{}\", \"version\": 2, \"block_size\": {}, \"hash_id_scope\": \"local\", \"source\": "
      "{{\"format\": \"csdsim\", \"digest\": \"{}\"}}}}\n",
      kSchema, *trace.block_tokens, trace.name);
  for (std::size_t i = 0; i < trace.requests.size(); ++i) {
    const TracedRequest& r = trace.requests[i];
    std::vector<std::string> waits;
    for (const TraceDependency& d : trace.dependencies_of(r))
      waits.push_back(
          fmt::format("{{\"request_id\": \"r{}\", \"trigger\": \"{}\", \"delay_ms\": {}, \"relation\": \"sequence\"}}",
                      d.request, d.trigger == TraceDependency::Trigger::completion ? "completion" : "dispatch",
                      time_text(d.delay, kMillisecond)));
    text += fmt::format(
        "{{\"request_id\": \"r{}\", \"play_id\": \"0\", \"session_id\": \"{}\", \"model\": \"any\", "
        "\"input_length\": {}, \"output_length\": {}, \"hash_ids\": {}, \"not_before_ms\": {}, \"dependencies\": "
        "[{}]{}}}\n",
        i, r.session ? fmt::format("{}", *r.session) : fmt::format("r{}", i), r.prompt, r.output,
        id_list(trace.blocks_of(r)), time_text(r.arrival, kMillisecond), join(waits),
        r.priority > 0 ? fmt::format(", \"priority\": {}", r.priority) : "");
  }
  return text;
}

}  // namespace

const TraceFormat kAgenticFormat{
    "agentic", "agentic Mooncake 2: a header with block_size, then lines with not_before_ms and dependencies",
    [](std::string_view beginning) { return beginning.starts_with('{') && has_key(beginning, "schema"); },
    [](const std::filesystem::path& path, const ServingTraceOptions& options) {
      return AgenticReader(path, options).finish();
    },
    write};

}  // namespace csdsim::host
