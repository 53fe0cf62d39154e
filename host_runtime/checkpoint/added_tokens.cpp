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

/// A token as text, or as an object with its text in `content`. Empty text: none.
AddedToken token_of(const std::filesystem::path& file, const std::string& field, const json& value) {
  if (value.is_string()) return {value.get<std::string>(), {}, false};
  const auto content = value.is_object() ? value.find("content") : value.end();
  if (!value.is_object() || content == value.end() || !content->is_string())
    fail(file, field, fmt::format("expected the text of a token, found {}", printable(value.dump())));
  for (const char* flag : {"single_word", "lstrip", "rstrip"})
    if (value.value(flag, json(false)) == true) fail(file, field + "." + flag, "true is not implemented");
  return {content->get<std::string>(), {}, value.value("normalized", json(false)) == true};
}

/// Collects tokens by their text; the first mention of a text counts.
class Collection {
 public:
  explicit Collection(const std::function<std::optional<TokenId>(const std::string&)>& id_of) : id_of_(id_of) {}

  void add(AddedToken token) {
    if (!token.content.empty()) tokens_.try_emplace(token.content, token);
  }
  void add_known(AddedToken token) {
    if (tokens_.contains(token.content)) return;
    if (const auto id = id_of_(token.content)) add({token.content, *id, token.normalized});
  }
  std::vector<AddedToken> tokens() const {
    std::vector<AddedToken> all;
    for (const auto& [content, token] : tokens_) all.push_back(token);
    return all;
  }

 private:
  const std::function<std::optional<TokenId>(const std::string&)>& id_of_;
  std::map<std::string, AddedToken> tokens_;
};

/// bos_token, eos_token and so on, and additional_special_tokens.
void read_special(const std::filesystem::path& file, const json& object, Collection& collection) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_null()) continue;
    if (key.ends_with("_token") && !value.is_boolean()) collection.add_known(token_of(file, key, value));
    if (key != "additional_special_tokens" && key != "extra_special_tokens") continue;
    if (!value.is_array()) continue;  // a map of names, which are among the other keys
    for (std::size_t i = 0; i < value.size(); ++i)
      collection.add_known(token_of(file, fmt::format("{}[{}]", key, i), value[i]));
  }
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
    if (at > done) pieces.push_back({std::string(text.substr(done, at - done)), {}});
    pieces.push_back({found->content, found->id});
    done = at += found->content.size();
  }
  if (done < text.size()) pieces.push_back({std::string(text.substr(done)), {}});
  return pieces;
}

const std::string* AddedTokens::content(TokenId id) const {
  const auto found = content_.find(id.value);
  return found == content_.end() ? nullptr : &found->second;
}

std::vector<AddedToken> read_added_tokens(const std::filesystem::path& directory,
                                          const std::function<std::optional<TokenId>(const std::string&)>& id_of) {
  Collection collection(id_of);
  const auto config = directory / "tokenizer_config.json", special = directory / "special_tokens_map.json",
             added = directory / "added_tokens.json";
  if (is_present(config)) {
    const json object = read_json_object(config);
    if (const auto tokens = object.find("added_tokens_decoder"); tokens != object.end() && tokens->is_object())
      for (const auto& [id, value] : tokens->items()) {
        const std::string field = "added_tokens_decoder." + id;
        AddedToken token = token_of(config, field, value);
        token.id = id_from(config, field, id);
        collection.add(std::move(token));
      }
    read_special(config, object, collection);
  }
  if (is_present(added)) {
    const json ids = read_json_object(added);
    for (const auto& [content, id] : ids.items())
      collection.add({content, id_from(added, printable(content), id.dump()), false});
  }
  if (is_present(special)) read_special(special, read_json_object(special), collection);
  return collection.tokens();
}

}  // namespace csdsim::host
