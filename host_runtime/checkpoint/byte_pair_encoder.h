// Byte-pair encoding of one word: merges of neighbouring tokens, the best known pair first.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// Vocabulary and merges over raw bytes. Works like `BPE` of Hugging Face tokenizers: of all neighbouring pairs that
/// have a merge, the one of lowest rank (of equals the leftmost) is merged, until no pair is left. O(n log n) in the
/// length of a word.
class BytePairEncoder {
 public:
  BytePairEncoder() = default;
  BytePairEncoder(BytePairEncoder&&) = default;  // the elements of the maps stay where they are
  BytePairEncoder& operator=(BytePairEncoder&&) = default;

  /// Adds a token. False if its bytes or its id exist already.
  bool add_token(std::string bytes, TokenId id);
  /// Adds the merge of next rank. False if left, right or their concatenation is not a token, or the merge exists
  /// already.
  bool add_merge(std::string_view left, std::string_view right);
  /// Makes encode() use a token for a whole word without merging (Llama 3).
  void set_whole_words(bool whole_words) { whole_words_ = whole_words; }
  /// The first byte that is not a token. encode() needs all 256 bytes to be tokens.
  std::optional<std::uint8_t> missing_byte() const;

  /// Appends the tokens of a word.
  void encode(std::string_view word, std::vector<TokenId>& tokens) const;
  /// The bytes of a token, or null.
  const std::string* bytes(TokenId id) const;
  const TokenId* find(std::string_view bytes) const;
  /// Largest id plus one; 0 without tokens.
  std::uint32_t largest_id() const { return largest_id_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };
  struct Merge {
    std::uint32_t rank = 0;
    TokenId merged;
  };
  const Merge* merge_of(TokenId left, TokenId right) const;

  std::unordered_map<std::string, TokenId, Hash, std::equal_to<>> ids_;
  std::unordered_map<std::uint32_t, const std::string*> bytes_;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by both ids
  std::uint32_t largest_id_ = 0;
  bool whole_words_ = false;
};

}  // namespace csdsim::host
