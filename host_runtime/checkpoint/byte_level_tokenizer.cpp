#include "host_runtime/checkpoint/byte_level_tokenizer.h"

#include <algorithm>
#include <array>

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
  // Of several added tokens that begin at one place, the longest counts.
  std::sort(parts_.added.begin(), parts_.added.end(), [](const AddedToken& a, const AddedToken& b) {
    return a.content.size() != b.content.size() ? a.content.size() > b.content.size() : a.content < b.content;
  });
  vocabulary_ = parts_.encoder.largest_id() + 1;
  for (AddedToken& token : parts_.added) {
    if (token.normalized && parts_.nfc) token.content = normalize_nfc(token.content);
    added_by_id_.emplace(token.id.value, &token);
    vocabulary_ = std::max(vocabulary_, token.id.value + 1);
  }
}

std::vector<ByteLevelTokenizer::Piece> ByteLevelTokenizer::cut(std::string_view text, bool normalized) const {
  std::vector<Piece> pieces;
  std::size_t done = 0;
  std::array<bool, 256> begins{};
  for (const AddedToken& token : parts_.added) {
    if (token.normalized == normalized) begins[static_cast<unsigned char>(token.content.front())] = true;
  }
  for (std::size_t at = 0; at < text.size();) {
    const auto found = !begins[static_cast<unsigned char>(text[at])]
                           ? parts_.added.end()
                           : std::find_if(parts_.added.begin(), parts_.added.end(), [&](const AddedToken& token) {
                               return token.normalized == normalized && text.substr(at).starts_with(token.content);
                             });
    if (found == parts_.added.end()) {
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

void ByteLevelTokenizer::encode_words(std::string text, std::vector<TokenId>& tokens) const {
  if (parts_.prefix_space && !text.starts_with(' ')) text.insert(0, 1, ' ');
  for (const std::string& word : parts_.words.split(text)) parts_.encoder.encode(word, tokens);
}

std::vector<TokenId> ByteLevelTokenizer::encode(std::string_view text) const {
  std::vector<TokenId> tokens;
  for (const Piece& given : cut(text, false)) {
    if (given.added) {
      tokens.push_back(*given.added);
      continue;
    }
    for (Piece& piece : cut(parts_.nfc ? normalize_nfc(given.text) : given.text, true)) {
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
    if (const auto added = added_by_id_.find(token.value); added != added_by_id_.end()) {
      bytes += added->second->content;
    } else if (const std::string* const known = parts_.encoder.bytes(token)) {
      bytes += *known;
    }
  }
  return repair_utf8(bytes);
}

}  // namespace csdsim::host
