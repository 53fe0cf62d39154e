#include "host_runtime/checkpoint/byte_level_tokenizer.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace csdsim::host {
namespace {

// Code point that stands for each byte: the byte itself where it is printable in Latin-1, otherwise the next free one
// from 256 on.
std::array<std::uint32_t, 256> byte_level_alphabet() {
  std::array<std::uint32_t, 256> code_points{};
  std::uint32_t next = 256;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    code_points[byte] = printable ? byte : next++;
  }
  return code_points;
}

}  // namespace

std::optional<std::string> bytes_of_byte_level(std::string_view text) {
  // Indexed by code point; all are below 512, which is two bytes of UTF-8.
  static const std::array<int, 512> byte_of = [] {
    std::array<int, 512> table;
    table.fill(-1);
    const auto alphabet = byte_level_alphabet();
    for (int byte = 0; byte < 256; ++byte) table[alphabet[static_cast<std::size_t>(byte)]] = byte;
    return table;
  }();
  std::string bytes;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto lead = static_cast<unsigned char>(text[i]);
    std::uint32_t code_point = lead;
    if (lead >= 0x80) {
      if ((lead & 0xE0) != 0xC0 || i + 1 == text.size()) return {};
      code_point = (lead & 0x1Fu) << 6 | (static_cast<unsigned char>(text[++i]) & 0x3Fu);
    }
    if (code_point >= byte_of.size() || byte_of[code_point] < 0) return {};
    bytes.push_back(static_cast<char>(byte_of[code_point]));
  }
  return bytes;
}

ByteLevelTokenizer::ByteLevelTokenizer(Parts parts) : parts_(std::move(parts)) {
  for (AddedToken& token : parts_.added)
    if (token.normalized && parts_.nfc) token.content = normalize_nfc(token.content);
  added_ = AddedTokens(std::move(parts_.added));
  vocabulary_ = std::max(parts_.encoder.largest_id() + 1, added_.largest_id());
}

void ByteLevelTokenizer::encode_words(std::string text, std::vector<TokenId>& tokens) const {
  if (parts_.prefix_space && !text.starts_with(' ')) text.insert(0, 1, ' ');
  std::vector<std::string> words{std::move(text)};
  for (const TextSplitter& splitter : parts_.words) {
    std::vector<std::string> finer;
    for (const std::string& word : words) std::ranges::move(splitter.split(word), std::back_inserter(finer));
    words = std::move(finer);
  }
  for (const std::string& word : words) parts_.encoder.encode(word, tokens);
}

std::vector<TokenId> ByteLevelTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> tokens;
  for (const AddedTokens::Piece& given : added_.cut(text, false)) {
    if (given.added) {
      tokens.push_back(*given.added);
      continue;
    }
    for (AddedTokens::Piece& piece : added_.cut(parts_.nfc ? normalize_nfc(given.text) : given.text, true)) {
      if (piece.added) {
        tokens.push_back(*piece.added);
      } else {
        encode_words(std::move(piece.text), tokens);
      }
    }
  }
  return tokens;
}

std::string ByteLevelTokenizer::decode(std::span<const TokenId> tokens) const {
  std::string bytes;
  for (const TokenId token : tokens) {
    if (const std::string* const added = added_.content(token)) {
      bytes += *added;
    } else if (const std::string* const known = parts_.encoder.bytes(token)) {
      bytes += *known;
    }
  }
  return repair_utf8(bytes);
}

}  // namespace csdsim::host
