#include "host_runtime/checkpoint/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "host_runtime/checkpoint/added_tokens.h"
#include "host_runtime/checkpoint/json_file.h"
#include "host_runtime/checkpoint/mapped_file.h"

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
  if (const auto status = processor.LoadFromSerializedProto(model); !status.ok())
    throw UserError(fmt::format("{}: not a valid sentencepiece model: {}", path.string(), status.ToString()));
}

std::vector<AddedToken> added_tokens(const std::filesystem::path& path,
                                     const sentencepiece::SentencePieceProcessor& model) {
  const auto id_of = [&](const std::string& token) -> std::optional<TokenId> {
    const int id = model.PieceToId(token);
    if (model.IdToPiece(id) != token) return {};
    return TokenId{static_cast<std::uint32_t>(id)};
  };
  std::vector<AddedToken> tokens = read_added_tokens(path.parent_path(), id_of);
  for (int id = 0; id < model.GetPieceSize(); ++id) {
    if (!model.IsControl(id) && !model.IsUnknown(id)) continue;
    const std::string& piece = model.IdToPiece(id);
    if (std::ranges::find(tokens, piece, &AddedToken::content) == tokens.end())
      tokens.push_back({piece, TokenId{static_cast<std::uint32_t>(id)}, false});
  }
  // Nothing here normalises text before it is cut.
  for (AddedToken& token : tokens) token.normalized = false;
  return tokens;
}

bool legacy(const std::filesystem::path& directory) {
  const auto config = directory / "tokenizer_config.json";
  return is_present(config) && read_json_object(config).value("legacy", nlohmann::json()) == true;
}

class Sentencepiece final : public Tokenizer::Kind {
 public:
  explicit Sentencepiece(const std::filesystem::path& path) {
    load(processor_, path);
    added_ = AddedTokens(added_tokens(path, processor_));
    if (!legacy(path.parent_path())) load(without_prefix_.emplace(), path, kNoPrefix);
  }

  std::uint32_t vocabulary() const override { return std::max(pieces(), added_.largest_id()); }

  std::vector<TokenId> encode(std::string_view text) const override {
    std::vector<TokenId> tokens;
    for (const AddedTokens::Piece& piece : added_.cut(text, false)) {
      if (piece.added) {
        tokens.push_back(*piece.added);
        continue;
      }
      const auto& processor = tokens.empty() || !without_prefix_ ? processor_ : *without_prefix_;
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
};

}  // namespace

Tokenizer open_sentencepiece(const std::filesystem::path& path) {
  return Tokenizer(std::make_unique<Sentencepiece>(path));
}

}  // namespace csdsim::host
