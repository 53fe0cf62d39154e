#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/text.h"
#include "host_runtime/checkpoint/added_tokens.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"
#include "host_runtime/checkpoint/tokenizer_json.h"

namespace csdsim::host {
namespace {

/// normalizer_spec.add_dummy_prefix = false. Appended to a serialised ModelProto it replaces the value there: a parser
/// merges messages that occur twice.
constexpr std::string_view kNoPrefix{"\x1A\x02\x18\x00", 4};

void load(sentencepiece::SentencePieceProcessor& processor, const std::filesystem::path& path,
          std::string_view changes = {}) {
  const MappedFile file(path);
  std::string model(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  model += changes;
  if (!processor.LoadFromSerializedProto(model).ok())
    throw UserError(fmt::format("{}: neither a sentencepiece model nor a vocabulary of tiktoken{}", path.string(),
                                model.find_first_not_of(" \t\r\n") == model.npos ? ": the file is empty"
                                : model.starts_with('<')                         ? ": it is a page of a web site"
                                                                                 : ""));
}

/// The first token of which tokenizer.json says another thing than the sentencepiece model; empty if there is none.
std::string difference(const nlohmann::json& of_fast, const sentencepiece::SentencePieceProcessor& model) {
  const nlohmann::json none, &vocabulary = of_fast.contains("vocab") ? of_fast["vocab"] : none;
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    const std::string& piece = model.IdToPiece(id);
    const auto at = static_cast<std::size_t>(id);
    const bool same = vocabulary.is_object() ? vocabulary.value(piece, nlohmann::json()) == id
                                             : at < vocabulary.size() && vocabulary[at].is_array() &&
                                                   !vocabulary[at].empty() && vocabulary[at][0] == piece;
    if (!same) return fmt::format("token {} is '{}' in tokenizer.model", id, printable(piece));
  }
  // sentencepiece merges by score, tokenizer.json in the order of its list.
  float last = std::numeric_limits<float>::infinity();
  for (const nlohmann::json& merge : of_fast.value("merges", nlohmann::json::array())) {
    std::string both = merge.is_string() ? merge.get<std::string>() : "";
    if (merge.is_array())
      for (const nlohmann::json& part : merge) both += part.is_string() ? part.get<std::string>() : "";
    else
      std::erase(both, ' ');
    const float score = model.GetScore(model.PieceToId(both));
    if (score > last) return fmt::format("'{}' is merged earlier in tokenizer.model", printable(both));
    last = score;
  }
  return "";
}

/// transformers reads tokenizer.json. Of this kind only its twin tokenizer.model is read here, which must say the same.
void require_same_pieces(const std::filesystem::path& fast, const std::filesystem::path& path,
                         const sentencepiece::SentencePieceProcessor& model) {
  const nlohmann::json file = read_json_object(fast, kTokenizerLimit);
  const std::string what = difference(file.value("model", nlohmann::json::object()), model);
  if (!what.empty())
    throw UserError(fmt::format(
        "{}: disagrees with tokenizer.json, which transformers reads: {}; csdsim reads a tokenizer.json of this kind "
        "only as its tokenizer.model: take the tokenizer.model that belongs to it, or take tokenizer.json out",
        path.string(), what));
}

TokenizerSettings settings_of(const std::filesystem::path& path, const sentencepiece::SentencePieceProcessor& model) {
  const auto id_of = [&](const std::string& token) -> std::optional<TokenId> {
    const int id = model.PieceToId(token);
    if (model.IdToPiece(id) != token) return {};
    return TokenId{static_cast<std::uint32_t>(id)};
  };
  TokenizerSettings settings = read_tokenizer_settings(path.parent_path(), id_of);
  std::vector<AddedToken>& tokens = settings.tokens;
  const auto add = [&](const AddedToken& token) {
    if (std::ranges::find(tokens, token.content, &AddedToken::content) == tokens.end()) tokens.push_back(token);
  };
  if (const auto fast = path.parent_path() / "tokenizer.json"; is_present(fast)) {
    require_same_pieces(fast, path, model);
    for (const AddedToken& token : read_added_tokens(fast)) add(token);
  }
  for (int id = 0; id < model.GetPieceSize(); ++id)
    if (model.IsControl(id) || model.IsUnknown(id)) add({model.IdToPiece(id), TokenId{static_cast<std::uint32_t>(id)}});
  std::ranges::stable_sort(tokens, {}, [](const AddedToken& token) { return token.id.value; });
  std::ranges::move(number_tokens(tokens, static_cast<std::size_t>(model.GetPieceSize()), id_of, path.parent_path()),
                    std::back_inserter(settings.notes));
  // Nothing here normalises text before it is cut.
  for (AddedToken& token : tokens) token.normalized = false;
  if (settings.legacy && settings.prefix_space == false)
    throw UserError(fmt::format("{}: add_prefix_space: false together with legacy: true is not implemented",
                                (path.parent_path() / "tokenizer_config.json").string()));
  return settings;
}

class Sentencepiece final : public Tokenizer::Kind {
 public:
  explicit Sentencepiece(const std::filesystem::path& path) {
    load(processor_, path);
    TokenizerSettings settings = settings_of(path, processor_);
    added_ = AddedTokens(std::move(settings.tokens));
    notes_ = std::move(settings.notes);
    prefix_ = settings.prefix_space.value_or(true);
    if (!settings.legacy) load(without_prefix_.emplace(), path, kNoPrefix);
  }

  const std::vector<std::string>& notes() const { return notes_; }
  std::uint32_t vocabulary() const override { return std::max(pieces(), added_.largest_id()); }

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> tokens;
    for (const AddedTokens::Piece& piece : added_.cut(text, false)) {
      if (piece.added) {
        tokens.push_back(*piece.added);
        continue;
      }
      const bool first = tokens.empty() && prefix_;
      const auto& processor = first || !without_prefix_ ? processor_ : *without_prefix_;
      std::vector<int> ids;
      const auto status = processor.Encode(piece.text, &ids);
      if (!status.ok()) throw UserError(fmt::format("text cannot be tokenised: {}", status.ToString()));
      for (const int id : ids) tokens.push_back(TokenId{static_cast<std::uint32_t>(id)});
    }
    return tokens;
  }

  /// Control tokens stand for no text, added ones for theirs.
  std::string decode(std::span<const TokenId> tokens) const override {
    std::string text;
    std::vector<int> ids;
    const auto flush = [&] {
      std::string part;
      const auto status = processor_.Decode(ids, &part);
      if (!status.ok()) throw UserError(fmt::format("token ids cannot be turned into text: {}", status.ToString()));
      text += part;
      ids.clear();
    };
    for (const TokenId token : tokens) {
      if (token.value < pieces()) {
        ids.push_back(static_cast<int>(token.value));
        continue;
      }
      flush();
      if (const std::string* const added = added_.content(token)) text += *added;
    }
    flush();
    return text;
  }

 private:
  std::uint32_t pieces() const { return static_cast<std::uint32_t>(processor_.GetPieceSize()); }

  sentencepiece::SentencePieceProcessor processor_;
  std::optional<sentencepiece::SentencePieceProcessor> without_prefix_;  ///< empty: `legacy`
  AddedTokens added_;
  std::vector<std::string> notes_;
  bool prefix_ = true;  ///< a blank is put before text, where the model does so
};

}  // namespace

Tokenizer open_sentencepiece(const std::filesystem::path& path) {
  auto tokenizer = std::make_unique<Sentencepiece>(path);
  const std::vector<std::string> notes = tokenizer->notes();
  return Tokenizer(std::move(tokenizer), path, notes);
}

}  // namespace csdsim::host
