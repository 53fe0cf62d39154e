// The reader of text files for all formats: YAML, JSON, CSV, traces, prompts. Files are UTF-8, with or without a
// byte-order mark; lines end with LF or CRLF, and the last one may have no end. Lines and columns count from 1; a
// column counts bytes, without the mark.
#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/units.h"

namespace csdsim {

/// "FILE:LINE:COLUMN" of the byte `offset` of a file's text.
std::string text_position(std::string_view file, std::string_view text, std::size_t offset);

/// Drops a byte-order mark, makes LF of CRLF and checks the encoding. Throws UserError "FILE:LINE:COLUMN: error: ..."
/// for bytes that are not UTF-8; says so where the text is UTF-16.
std::string decode_text(std::string bytes, std::string_view file);

/// The text of a file as decode_text() makes it. Throws UserError for a file that is not there (with the name that was
/// probably meant), is a directory, cannot be read, has more than `limit` bytes, or is not UTF-8.
std::string read_text_file(const std::filesystem::path& path, Bytes limit);

/// Throws UserError "FILE:LINE:COLUMN: error: ..." for a carriage return that ends no line: for texts whose lines count
/// and that decode_text() has made.
void refuse_lone_returns(std::string_view text, std::string_view file);

/// Reads a text file line by line, in memory for its longest line.
class TextLines {
 public:
  static constexpr std::size_t kLongestLine = 4096;

  /// Throws UserError when the file cannot be opened.
  explicit TextLines(const std::filesystem::path& file, std::size_t longest_line = kLongestLine);

  /// Returns the next line that is not blank, without its line end; nothing at the end of the file. Throws UserError,
  /// located, for a line that is longer than longest_line bytes, is not UTF-8 or contains a NUL or a lone carriage
  /// return, and for a file that cannot be read. The text is valid until the next call.
  std::optional<std::string_view> next();
  /// Number of the line that next() has returned last.
  std::uint64_t line() const { return line_; }
  const std::string& file() const { return file_; }
  /// What an error in the line that next() has returned last should add: "; the file ends in this line ..." where the
  /// line has no end, so that it may be torn; empty for all others.
  std::string torn_remark() const;
  /// "FILE:LINE: note: ..." in the same case, for a line in which nothing is wrong: its last value may be a part of
  /// one.
  std::string torn_note() const;
  /// Throws UserError "FILE:LINE:COLUMN: error: MESSAGE", with torn_remark() where it is about that line.
  [[noreturn]] void fail(std::uint64_t line, std::uint64_t column, const std::string& message) const;

 private:
  [[noreturn]] void refuse(std::uint64_t line, std::uint64_t column, const std::string& message) const;
  std::string_view check(std::string_view text) const;
  /// Reads a line into the buffer and returns its length without the line feed.
  std::size_t read_line();

  std::string file_;
  std::ifstream stream_;
  std::size_t longest_;
  std::vector<char> buffer_;
  std::uint64_t line_ = 0;
  bool open_ended_ = false;  ///< the last line that next() has returned has no end
};

/// A part of a line, and its start column.
struct TextField {
  std::string_view text;
  std::uint32_t column = 1;
};

/// The values of a line that are separated by commas, without the blanks around them and without the double quotes in
/// which a value may stand. Commas in quotes separate nothing; quotes inside a value have no meaning.
std::vector<TextField> comma_separated(std::string_view line);

/// The words of a line that are separated by blanks.
std::vector<TextField> blank_separated(std::string_view line);

}  // namespace csdsim
