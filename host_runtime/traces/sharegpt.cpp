// Conversations of ShareGPT: an array of JSON, or a line each. Each answer is a request whose prompt is all before it.
#include <fmt/format.h>

#include <array>

#include "base/rng.h"
#include "base/text.h"
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

/// The KV blocks of a conversation that grows: by its tokens, or, where only their number is known, by their places.
class GrowingPrefix {
 public:
  GrowingPrefix(std::uint32_t block_tokens, std::uint64_t salt)
      : block_tokens_(block_tokens), last_(chain_root(salt)) {}

  std::uint64_t size() const { return size_; }
  void add(std::span<const std::uint32_t> tokens) {
    for (const std::uint32_t token : tokens) add_token(token);
  }
  void add(std::uint64_t tokens) {
    for (; tokens > 0; --tokens) add_token(0);
  }
  /// The last block may be partly filled.
  std::vector<KvBlockId> blocks() const {
    std::vector<KvBlockId> ids = whole_;
    if (!tail_.empty()) ids.push_back(chained_id(last_, tail_));
    return ids;
  }

 private:
  void add_token(std::uint32_t token) {
    ++size_;
    tail_.push_back(token);
    if (tail_.size() < block_tokens_) return;
    whole_.push_back(last_ = chained_id(last_, tail_));
    tail_.clear();
  }

  std::uint32_t block_tokens_;
  KvBlockId last_;
  std::vector<KvBlockId> whole_;
  std::vector<std::uint32_t> tail_;
  std::uint64_t size_ = 0;
};

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
    if (answer && prefix.size() > 0) add_request(record, conversation, prefix, length);
    tokenize ? prefix.add(tokens) : prefix.add(length);
  }

  void add_request(JsonValue place, std::uint64_t conversation, const GrowingPrefix& prefix, std::uint64_t output) {
    builder_.begin_request(place.line());
    builder_.add_lengths(place.located(), prefix.size(), output);
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
    [](std::string_view beginning) { return beginning.starts_with('[') || has_key(beginning, "conversations"); },
    [](const std::filesystem::path& path, const ServingTraceOptions& options) {
      return ShareGptReader(path, options).finish();
    }};

}  // namespace csdsim::host
