// Alibaba Bailian's JSON lines ("KVCache Cache in the Wild", ATC 2025; github.com/alibaba-edu/
// qwen-bailian-usagetraces-anon). Its hashes are of blocks of 16 tokens each, not of all that stands before them.
#include <fmt/format.h>

#include <unordered_map>

#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kChat, kParent, kTimestamp, kInput, kOutput, kType, kTurn, kHashIds };
const FieldNames kFields{{"chat_id"},       {"parent_chat_id"}, {"timestamp"}, {"input_length"},
                         {"output_length"}, {"type"},           {"turn"},      {"hash_ids"}};
constexpr std::uint32_t kBlockTokens = 16;
constexpr SimTime kSecond = SimTime::milliseconds(1000);

/// The chats of a file. A parent that is not in the file was before its first request; its children begin sessions.
class Chats {
 public:
  /// Puts the last request of the trace into the session of its parent.
  void add(const JsonFields& row, TraceBuilder& trace) {
    const std::string name = row.at(kChat).name("chat_id");
    const std::string parent = row.name(kParent).value_or("-1");
    const auto [chat, is_new] = chats_.try_emplace(name, Chat{trace.request_index(), name});
    if (!is_new && chat->second.request) row.at(kChat).fail(fmt::format("chat_id: {} is in the file twice", name));
    if (!is_new) row.at(kChat).fail(fmt::format("chat_id: {} stands below a chat that names it as its parent", name));
    if (parent == "-1") {
      trace.add_session(name);
      return;
    }
    const Chat before = chats_.try_emplace(parent, Chat{std::nullopt, name}).first->second;
    chats_.at(name).root = before.root;
    trace.add_session(before.root);
    if (before.request) trace.add_dependency({.request = *before.request});
  }

 private:
  struct Chat {
    std::optional<std::uint32_t> request;  ///< none: not in the file so far
    std::string root;
  };
  std::unordered_map<std::string, Chat> chats_;
};

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::contents, kBlockTokens);
  JsonFields row(kFields);
  Chats chats;
  for_each_record(path, builder, [&](JsonValue record) {
    row.read(record);
    builder.begin_request(record.line());
    builder.add_lengths(row.at(kInput).located(), "input_length", row.at(kOutput).located(), "output_length");
    const LocatedValue timestamp = row.at(kTimestamp).located();
    builder.add_arrival(timestamp, trace_time(timestamp, "timestamp", kSecond));
    chats.add(row, builder);
    builder.add_hash_ids(row.find(kHashIds), "hash_ids", row.object());
  });
  return builder.finish();
}

std::string write(const ServingTrace& trace) {
  require_arrivals(trace, "bailian");
  std::string text;
  std::vector<std::uint32_t> turns;
  for (const TracedRequest& r : trace.requests) {
    const auto before = dependency_of(trace, r, "bailian");
    turns.push_back(before ? turns[before->request] + 1 : 1);
    text += fmt::format(
        "{{\"chat_id\": {}, \"parent_chat_id\": {}, \"timestamp\": {}, \"input_length\": {}, \"output_length\": {}, "
        "\"type\": \"text\", \"turn\": {}",
        turns.size() - 1, before ? fmt::format("{}", before->request) : "-1", time_text(r.arrival, kSecond), r.prompt,
        r.output, turns.back());
    if (trace.block_tokens) text += fmt::format(", \"hash_ids\": {}", id_list(trace.blocks_of(r)));
    text += "}\n";
  }
  return text;
}

}  // namespace

const TraceFormat kBailianFormat{
    "bailian",
    "JSON lines of Bailian: chat_id, parent_chat_id, timestamp (s), input_length, output_length, type, turn, hash_ids "
    "of 16 tokens",
    [](std::string_view beginning) { return begins_json(beginning) && has_key(beginning, "chat_id"); }, read, write};

}  // namespace csdsim::host
