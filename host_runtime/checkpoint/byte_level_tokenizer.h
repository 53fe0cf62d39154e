// Byte-level BPE: tokenizers of GPT-2, OPT, Llama 3 and Qwen2.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host_runtime/checkpoint/added_tokens.h"
#include "host_runtime/checkpoint/byte_pair_encoder.h"
#include "host_runtime/checkpoint/tokenizer.h"
#include "host_runtime/checkpoint/unicode.h"

namespace csdsim::host {

/// The pattern that splits text into words for GPT-2 and OPT, as `ByteLevel` of Hugging Face tokenizers does it.
inline constexpr const char* kGpt2Pattern =
    R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// The bytes that byte-level text stands for: GPT-2 writes every byte as a printable character ("Ġ" is a blank).
/// Empty if a character stands for no byte.
std::optional<std::string> bytes_of_byte_level(std::string_view text);

/// Cuts text at added tokens, normalises it, splits it into words, and merges the bytes of each word.
class ByteLevelTokenizer final : public Tokenizer::Kind {
 public:
  struct Parts {
    BytePairEncoder encoder;
    std::vector<TextSplitter> words;  ///< each cuts the parts that the one before it has made
    std::vector<AddedToken> added;
    bool nfc = false;           ///< normalise to NFC
    bool prefix_space = false;  ///< put a blank before text that does not begin with one
  };

  explicit ByteLevelTokenizer(Parts parts);

  std::uint32_t vocabulary() const override { return vocabulary_; }
  std::vector<TokenId> encode(std::string_view text) const override;
  std::string decode(std::span<const TokenId> tokens) const override;

 private:
  void encode_words(std::string text, std::vector<TokenId>& tokens) const;

  Parts parts_;
  AddedTokens added_;
  std::uint32_t vocabulary_ = 0;
};

}  // namespace csdsim::host
