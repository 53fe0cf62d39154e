// The Unicode functions that byte-level tokenizers need, from ICU.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace csdsim::host {

/// Cuts text by a regular expression as `Split` of Hugging Face tokenizers does with behavior "Isolated": every match
/// is a part, and so is what lies between matches. Nothing is lost.
class TextSplitter {
 public:
  /// UserError beginning with `where` if the pattern is not a regular expression.
  TextSplitter(const std::string& pattern, const std::string& where);
  ~TextSplitter();
  TextSplitter(TextSplitter&&) noexcept;

  /// Parts of `text`, which is valid UTF-8. UserError if the pattern needs too much time or memory on it.
  std::vector<std::string> split(std::string_view text) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A regular expression that matches `text` and nothing else.
std::string literal_pattern(std::string_view text);

/// Normalisation form C of valid UTF-8.
std::string normalize_nfc(std::string_view text);

/// Bytes of white space at the start, or at the end, of valid UTF-8.
std::size_t space_at_start(std::string_view text);
std::size_t space_at_end(std::string_view text);

/// Replaces every maximal part of an ill-formed sequence by U+FFFD.
std::string repair_utf8(std::string_view bytes);

}  // namespace csdsim::host
