// Small text helpers for messages: joined lists and the name that was probably meant.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace csdsim {

/// The candidate nearest to `name` (edit distance with swaps, ignoring case), or "" when none is near enough to be a
/// slip.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

/// " (did you mean X?)", or "" when nothing is near.
std::string did_you_mean(std::string_view name, const std::vector<std::string>& candidates);

/// Items separated by ", ".
std::string join(const std::vector<std::string>& items, std::string_view separator = ", ");

/// Printable form of text from a user: control characters and bytes outside ASCII that are not UTF-8 are escaped, and
/// what is longer than `limit` characters is cut. A character that cannot be seen is named by its code point, as
/// <U+200B>; so is each that looks like an ASCII one in a text that reads as ASCII: "μ<U+03BC>s".
std::string printable(std::string_view text, std::size_t limit = 60);

/// Offset of the first byte that is not part of valid UTF-8, or npos.
std::size_t invalid_utf8(std::string_view text);

/// The character that begins at text[at] of valid UTF-8, and its length in bytes.
struct CodePoint {
  char32_t code = 0;
  std::size_t length = 1;
};
CodePoint code_point_at(std::string_view text, std::size_t at);

/// Text as the inside of a JSON string.
std::string json_escape(std::string_view text);

}  // namespace csdsim
