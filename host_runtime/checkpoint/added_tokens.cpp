#include "host_runtime/checkpoint/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/config_fields.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/unicode.h"

namespace csdsim::host {
namespace {

using nlohmann::json;

[[noreturn]] void fail(const std::filesystem::path& file, std::string_view field, const std::string& what) {
  throw UserError(fmt::format("{}: {}: {}", file.string(), field, what));
}

TokenId id_from(const std::filesystem::path& file, const std::string& field, const std::string& text) {
  std::uint32_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (error != std::errc{} || end != text.data() + text.size() || id > kMaxCount)
    fail(file, field, fmt::format("expected a token id, found '{}'", printable(text)));
  return TokenId{id};
}

/// A token as text, or as an object with its text in `content`.
AddedToken token_of(const std::filesystem::path& file, const std::string& field, const json& value) {
  if (value.is_string()) return {value.get<std::string>(), {}, false};
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (!value.is_object() || content == value.end() || !content->is_string())
    fail(file, field, fmt::format("expected the text of a token, found {}", printable(value.dump())));
  std::vector<std::string> problems;
  ConfigFields fields(value, fmt::format("{}: {}", file.string(), field), problems);
  fields.only("single_word", false, "not implemented");
  const AddedToken token{fields.text("content"),
                         {},
                         fields.boolean("normalized", false),
                         fields.boolean("lstrip", false),
                         fields.boolean("rstrip", false)};
  fields.refuse_unread(kUnreadOfTokens, "csdsim");
  throw_problems(problems);
  return token;
}

/// Collects tokens by their text; the first mention of a text counts.
class Collection {
 public:
  explicit Collection(std::function<std::optional<TokenId>(const std::string&)> id_of) : id_of_(std::move(id_of)) {}

  void add(const AddedToken& token) {
    if (!token.content.empty()) tokens_.try_emplace(token.content, token);
  }
  void add_known(AddedToken token) {
    if (tokens_.contains(token.content)) return;
    const auto id = id_of_(token.content);
    if (!id) return;
    token.id = *id;
    add(token);
  }
  std::vector<AddedToken> tokens() const {
    std::vector<AddedToken> all;
    for (const auto& [content, token] : tokens_) all.push_back(token);
    return all;
  }

 private:
  std::function<std::optional<TokenId>(const std::string&)> id_of_;
  std::map<std::string, AddedToken> tokens_;
};

/// A list of tokens, or a map from names to tokens.
void read_tokens(const std::filesystem::path& file, const std::string& key, const json& tokens,
                 Collection& collection) {
  if (!tokens.is_array() && !tokens.is_object()) fail(file, key, "expected a list of tokens, or a map of them");
  for (const auto& [name, token] : tokens.items())
    collection.add_known(token_of(file, fmt::format("{}: {}", key, printable(name)), token));
}

/// bos_token, eos_token and so on, and lists of more. Reports keys that are not read.
void read_special(const std::filesystem::path& file, const json& object, ConfigFields& fields, UnreadKeyGroups harmless,
                  Collection& collection) {
  for (const auto& [key, value] : object.items())
    if (key.ends_with("_token") && (value.is_string() || value.is_object()))
      collection.add_known(token_of(file, key, *fields.find(key.c_str())));
  for (const char* const key : {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"})
    if (const json* const tokens = fields.find(key)) read_tokens(file, key, *tokens, collection);
  fields.refuse_unread(harmless, "csdsim");
}

void read_tokenizer_config(const std::filesystem::path& file, const json& object, Collection& collection,
                           TokenizerSettings& settings) {
  std::vector<std::string> problems;
  ConfigFields fields(object, file.string(), problems);
  if (const auto tokens = fields.object("added_tokens_decoder")) {
    for (const auto& [id, value] : fields.find("added_tokens_decoder")->items()) {
      const std::string field = "added_tokens_decoder." + id;
      AddedToken token = token_of(file, field, value);
      token.id = id_from(file, field, id);
      collection.add(token);
    }
  }
  settings.legacy = fields.boolean("legacy", false);
  if (fields.has("add_prefix_space")) settings.prefix_space = fields.boolean("add_prefix_space", false);
  fields.only("split_special_tokens", false, "special tokens in text become their ids");
  fields.only("do_lower_case", false, "lower case is not implemented");
  fields.only("sp_model_kwargs", json::object(), "options of sentencepiece are not implemented");
  read_special(file, object, fields, kUnreadOfTokenizerConfig, collection);
  throw_problems(problems);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() != b.content.size() ? a.content.size() > b.content.size() : a.content < b.content;
  });
  for (const AddedToken& token : tokens_) {
    content_.emplace(token.id.value, token.content);
    largest_id_ = std::max(largest_id_, token.id.value + 1);
  }
}

std::vector<AddedTokens::Piece> AddedTokens::cut(std::string_view text, bool normalized) const {
  std::vector<Piece> pieces;
  std::size_t done = 0;
  std::array<bool, 256> begins{};
  for (const AddedToken& token : tokens_)
    if (token.normalized == normalized) begins[static_cast<unsigned char>(token.content.front())] = true;
  for (std::size_t at = 0; at < text.size();) {
    const auto found = !begins[static_cast<unsigned char>(text[at])]
                           ? tokens_.end()
                           : std::ranges::find_if(tokens_, [&](const AddedToken& token) {
                               return token.normalized == normalized && text.substr(at).starts_with(token.content);
                             });
    if (found == tokens_.end()) {
      ++at;
      continue;
    }
    const std::size_t end = at + found->content.size();
    const std::size_t before = found->lstrip ? space_at_end(text.substr(done, at - done)) : 0;
    if (at - before > done) pieces.push_back({std::string(text.substr(done, at - before - done)), {}});
    pieces.push_back({found->content, found->id});
    done = at = end + (found->rstrip ? space_at_start(text.substr(end)) : 0);
  }
  if (done < text.size()) pieces.push_back({std::string(text.substr(done)), {}});
  return pieces;
}

const std::string* AddedTokens::content(TokenId id) const {
  const auto found = content_.find(id.value);
  return found == content_.end() ? nullptr : &found->second;
}

TokenizerSettings read_tokenizer_settings(const std::filesystem::path& directory,
                                          const std::function<std::optional<TokenId>(const std::string&)>& id_of) {
  TokenizerSettings settings;
  Collection collection(id_of);
  const auto config = directory / "tokenizer_config.json", special = directory / "special_tokens_map.json",
             added = directory / "added_tokens.json";
  bool complete = false;
  if (is_present(config)) {
    const json object = read_json_object(config);
    read_tokenizer_config(config, object, collection, settings);
    complete = object.contains("added_tokens_decoder");
  }
  Collection more = collection;
  if (is_present(added)) {
    const json ids = read_json_object(added);
    for (const auto& [content, id] : ids.items())
      more.add({content, id_from(added, printable(content), id.dump()), false});
  }
  if (is_present(special)) {
    std::vector<std::string> problems;
    const json object = read_json_object(special);
    ConfigFields fields(object, special.string(), problems);
    read_special(special, object, fields, {}, more);
    throw_problems(problems);
  }
  settings.tokens = (complete ? collection : more).tokens();
  std::ranges::stable_sort(settings.tokens, {}, [](const AddedToken& token) { return token.id.value; });
  if (complete && settings.tokens.size() < more.tokens().size())
    settings.notes.push_back(
        fmt::format("{}: note: added_tokens_decoder lacks tokens of added_tokens.json or special_tokens_map.json; "
                    "they are not read, as in transformers",
                    config.string()));
  return settings;
}

std::vector<std::string> number_tokens(std::vector<AddedToken>& tokens, std::size_t vocabulary,
                                       const std::function<std::optional<TokenId>(const std::string&)>& id_of,
                                       const std::filesystem::path& directory) {
  std::vector<std::string> notes;
  auto next = static_cast<std::uint32_t>(vocabulary);
  for (AddedToken& token : tokens) {
    const std::optional<TokenId> known = id_of(token.content);
    const TokenId id = known.value_or(TokenId{next});
    next = std::max(next, id.value + 1);
    if (id != token.id)
      notes.push_back(fmt::format("{}: note: a file says that '{}' is token {}; it is token {}, as in transformers: {}",
                                  directory.string(), printable(token.content), token.id.value, id.value,
                                  known ? "the vocabulary knows the text" : "new tokens follow the vocabulary"));
    token.id = id;
  }
  return notes;
}

}  // namespace csdsim::host
