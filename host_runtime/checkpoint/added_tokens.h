// Tokens that are found in text as they are written, before the rest is tokenised: <s>, </s>, <|im_start|>.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

struct AddedToken {
  std::string content;
  TokenId id;
  bool normalized = false;  ///< found in normalised text rather than in the text as given
  bool lstrip = false;      ///< takes the white space before it
  bool rstrip = false;      ///< takes the white space behind it
};

/// Cuts text at added tokens. Of several that begin at one place, the longest counts.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  struct Piece {
    std::string text;
    std::optional<TokenId> added;
  };
  /// The text in pieces, at the tokens that are found in normalised text, or at the others.
  std::vector<Piece> cut(std::string_view text, bool normalized) const;

  /// The text of a token, or null.
  const std::string* content(TokenId id) const;
  /// Largest id plus one; 0 without tokens.
  std::uint32_t largest_id() const { return largest_id_; }

 private:
  std::vector<AddedToken> tokens_;
  std::unordered_map<std::uint32_t, std::string> content_;
  std::uint32_t largest_id_ = 0;
};

/// What the files beside a tokenizer say: tokenizer_config.json, special_tokens_map.json and added_tokens.json of
/// Hugging Face, whichever exist.
struct TokenizerSettings {
  std::vector<AddedToken> tokens;    ///< the special and the added ones
  bool legacy = false;               ///< sentencepiece: a blank stands before every part of a text
  std::optional<bool> prefix_space;  ///< whether a blank is put before text
  std::vector<std::string> notes;    ///< what the user should know, "FILE: note: ..."
};

/// Where a file does not state the id of a token, `id_of` gives it; a token that it does not know is left out, as it
/// cannot occur. As in transformers, added_tokens_decoder of tokenizer_config.json comes before the two other files.
/// Throws UserError, which names file and field; also for keys that nothing reads.
TokenizerSettings read_tokenizer_settings(const std::filesystem::path& directory,
                                          const std::function<std::optional<TokenId>(const std::string&)>& id_of);

/// Gives each token the id that tokenizers gives it: that of the vocabulary where it knows the text, else the next one
/// behind the vocabulary, in the order of `tokens`. Returns a note for each token of which a file says another id.
std::vector<std::string> number_tokens(std::vector<AddedToken>& tokens, std::size_t vocabulary,
                                       const std::function<std::optional<TokenId>(const std::string&)>& id_of,
                                       const std::filesystem::path& directory);

}  // namespace csdsim::host
