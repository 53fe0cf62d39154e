// Conversations of ShareGPT: an array of JSON, or a line each. Each answer is a request whose prompt is all before it.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "host_runtime/core/serving/growing_prefix.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Conversation : std::size_t { kId, kMessages };
const FieldNames kConversation{{"id"}, {"conversations"}};
enum Message : std::size_t { kFrom, kValue, kTokens };
const FieldNames kMessage{{"from"}, {"value"}, {"tokens"}};
constexpr std::uint32_t kBlockTokens = 16;
constexpr std::array<std::string_view, 4> kAnswers{"gpt", "chatgpt", "bing", "bard"};

class ShareGptReader {
 public:
  ShareGptReader(const std::filesystem::path& path, const ServingTraceOptions& options)
      : builder_(path, options, HashMeaning::contents, kBlockTokens) {
    for_each_record(path, builder_, [&](JsonValue record) { read_conversation(record); });
  }
  ServingTrace finish() { return builder_.finish(); }

 private:
  void read_conversation(JsonValue record) {
    conversation_.read(record);
    // Tokens that are known share blocks across conversations.
    const std::uint64_t number = conversations_++;
    GrowingPrefix prefix(builder_.block_tokens(), builder_.options().tokenize ? 0 : number + 1);
    conversation_.at(kMessages).for_each("conversations", [&](JsonValue message) {
      if (!builder_.full()) read_message(message, number, prefix);
    });
  }

  void read_message(JsonValue record, std::uint64_t conversation, GrowingPrefix& prefix) {
    message_.read(record);
    const std::string_view from = message_.at(kFrom).string("from");
    const bool answer = std::ranges::find(kAnswers, from) != kAnswers.end();
    if (!answer && from != "human" && from != "user" && from != "system")
      message_.at(kFrom).fail(
          fmt::format("from: '{}' is not one of system, human, user, {}", printable(from), fmt::join(kAnswers, ", ")));
    std::optional<std::uint64_t> stated;
    if (message_.find(kTokens)) stated = whole_number(message_.find(kTokens)->located(), "tokens", 0, kMostTraceTokens);
    std::vector<std::uint32_t> tokens;
    const auto& tokenize = builder_.options().tokenize;
    if (tokenize) {
      tokens = tokenize(message_.at(kValue).string("value"));
      if (stated && *stated != tokens.size())
        message_.find(kTokens)->fail(fmt::format("tokens: {}, but the tokenizer makes {}", *stated, tokens.size()));
    } else if (!stated) {
      record.fail("no tokens, the length of the message; or give a tokenizer");
    }
    const std::uint64_t length = tokenize ? tokens.size() : *stated;
    if (answer && prefix.tokens() > 0) add_request(record, conversation, prefix, length);
    tokenize ? prefix.add(tokens) : prefix.add(length, 0);
  }

  void add_request(JsonValue place, std::uint64_t conversation, const GrowingPrefix& prefix, std::uint64_t output) {
    builder_.begin_request(place.line());
    builder_.add_lengths(place.located(), prefix.tokens(), output);
    if (const auto before = builder_.add_session(fmt::format("{}", conversation)))
      builder_.add_dependency({.request = *before});
    builder_.add_blocks(prefix.blocks());
  }

  TraceBuilder builder_;
  JsonFields conversation_{kConversation}, message_{kMessage};
  std::uint64_t conversations_ = 0;
};

}  // namespace

const TraceFormat kShareGptFormat{
    "sharegpt",
    "conversations of ShareGPT: id, conversations of from, value and, without a tokenizer, tokens (the length)",
    [](std::string_view beginning) {
      const bool lengths = has_key(beginning, "input_length") || has_key(beginning, "input_tokens");
      return has_key(beginning, "conversations") || (beginning.starts_with('[') && !lengths);
    },
    [](const std::filesystem::path& path, const ServingTraceOptions& options) {
      return ShareGptReader(path, options).finish();
    }};

}  // namespace csdsim::host
