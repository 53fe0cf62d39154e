#include "base/text_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/text.h"

namespace csdsim {
namespace {

constexpr std::string_view kMark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t";
constexpr const char *kNul = "a NUL character: not text", *kUtf16 = "the file is UTF-16 text; save it as UTF-8",
                     *kLoneReturn = "a carriage return inside a line; lines end with LF or CRLF";

// Bytes that are read at a time.
constexpr std::size_t kSmallFile = std::size_t{1} << 14, kMostAtOnce = std::size_t{1} << 20;

/// What the first bytes of a file that is no text say about it.
constexpr std::pair<std::string_view, const char*> kPacked[] = {
    {"\x1F\x8B", "gzip"}, {"\x28\xB5\x2F\xFD", "zstd"}, {"\xFD\x37zXZ", "xz"}, {"BZh", "bzip2"}, {"PK\x03\x04", "zip"}};

/// The name of the program that has packed a file; null where none has.
const char* packed_by(std::string_view text) {
  for (const auto& [beginning, name] : kPacked)
    if (text.starts_with(beginning)) return name;
  return nullptr;
}

/// What a byte that is no text says about the file.
std::string encoding_problem(std::string_view text, std::size_t offset) {
  if (const char* const program = packed_by(text))
    return fmt::format("the file is packed with {}; unpack it first", program);
  if (text[offset] == '\0') return offset < 2 ? kUtf16 : kNul;
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF")) return kUtf16;
  return fmt::format("byte 0x{:02X} is not UTF-8 text; save the file as UTF-8",
                     static_cast<unsigned char>(text[offset]));
}

/// What a name that is no file was probably meant to be.
std::string file_hint(const std::filesystem::path& path) {
  if (path == "-") return "; standard input is /dev/stdin";
  const std::filesystem::path directory = path.has_parent_path() ? path.parent_path() : ".";
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(directory, error), end; !error && entry != end; entry.increment(error))
    if (entry->path().extension() == path.extension()) names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  const std::string near = nearest_name(path.filename().string(), names);
  return near.empty() ? "" : fmt::format(" (did you mean {}?)", (path.parent_path() / near).string());
}

std::string size_text(Bytes limit) {
  return limit.value >= (1u << 20) && limit.value % (1u << 20) == 0 ? fmt::format("{} MiB", limit.value >> 20)
                                                                    : fmt::format("{} bytes", limit.value);
}

std::ifstream open_text(const std::filesystem::path& path) {
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status))
    throw UserError(fmt::format("{}: error: no such file{}", path.string(), file_hint(path)));
  if (std::filesystem::is_directory(status))
    throw UserError(fmt::format("{}: error: is a directory, expected a file", path.string()));
  std::ifstream stream(path, std::ios::binary);
  if (!stream) throw UserError(fmt::format("{}: error: cannot be opened: {}", path.string(), std::strerror(errno)));
  return stream;
}

}  // namespace

std::string text_position(std::string_view file, std::string_view text, std::size_t offset) {
  const std::string_view before = text.substr(0, offset);
  const auto newline = before.rfind('\n');
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  return fmt::format("{}:{}:{}", file, line, 1 + offset - (newline == std::string_view::npos ? 0 : newline + 1));
}

std::string decode_text(std::string bytes, std::string_view file) {
  if (bytes.starts_with(kMark)) bytes.erase(0, kMark.size());
  std::size_t bad = invalid_utf8(bytes);
  if (bad == std::string::npos && bytes.substr(0, 2).find('\0') < 2) bad = bytes.find('\0');  // UTF-16 without a mark
  if (bad != std::string::npos)
    throw UserError(fmt::format("{}: error: {}", text_position(file, bytes, bad), encoding_problem(bytes, bad)));
  const auto ends_line = [&](std::size_t at) { return bytes.compare(at, 2, "\r\n") == 0; };
  std::size_t to = bytes.find("\r\n");
  if (to == std::string::npos) return bytes;
  for (std::size_t from = to; from < bytes.size(); ++from)
    if (!ends_line(from)) bytes[to++] = bytes[from];
  bytes.resize(to);
  return bytes;
}

void refuse_lone_returns(std::string_view text, std::string_view file) {
  if (const std::size_t lone = text.find('\r'); lone != text.npos)
    throw UserError(fmt::format("{}: error: {}", text_position(file, text, lone), kLoneReturn));
}

std::string read_text_file(const std::filesystem::path& path, Bytes limit) {
  std::ifstream stream = open_text(path);
  // Reads at most a block more than the limit: a device or pipe may never end. Blocks grow, because most files are
  // small.
  std::string text;
  for (std::size_t block = kSmallFile; stream && text.size() <= limit.value; block = std::min(2 * block, kMostAtOnce)) {
    const std::size_t before = text.size();
    text.resize(before + block);
    stream.read(text.data() + before, static_cast<std::streamsize>(block));
    text.resize(before + static_cast<std::size_t>(stream.gcount()));
  }
  if (text.size() > limit.value)
    throw UserError(fmt::format("{}: error: larger than the limit of {}", path.string(), size_text(limit)));
  if (stream.bad() || !stream.eof()) throw UserError(fmt::format("{}: error: cannot be read", path.string()));
  return decode_text(std::move(text), path.string());
}

TextLines::TextLines(const std::filesystem::path& file, std::size_t longest_line)
    : file_(file.string()),
      stream_(open_text(file)),
      longest_(longest_line),
      buffer_(std::min(longest_line, kLongestLine) + kMark.size() + 2) {}

std::string TextLines::torn_remark() const {
  return open_ended_ ? "; the file ends in this line, without a line end: the line may be torn" : "";
}

std::string TextLines::torn_note() const {
  if (!open_ended_) return "";
  return fmt::format(
      "{}:{}: note: the file ends in this line, without a line end; if the line is torn, its last value is wrong",
      file_, line_);
}

void TextLines::fail(std::uint64_t line, std::uint64_t column, const std::string& message) const {
  refuse(line, column, message + (line == line_ ? torn_remark() : ""));
}

void TextLines::refuse(std::uint64_t line, std::uint64_t column, const std::string& message) const {
  throw UserError(fmt::format("{}:{}:{}: error: {}", file_, line, column, message));
}

std::string_view TextLines::check(std::string_view text) const {
  if (const std::size_t bad = invalid_utf8(text); bad != text.npos) refuse(line_, bad + 1, encoding_problem(text, bad));
  if (const std::size_t nul = text.find('\0'); nul != text.npos)
    refuse(line_, nul + 1, line_ == 1 ? encoding_problem(text, nul) : kNul);
  if (const std::size_t lone = text.find('\r'); lone != text.npos) refuse(line_, lone + 1, kLoneReturn);
  return text;
}

std::size_t TextLines::read_line() {
  const std::size_t most = longest_ + kMark.size() + 2;
  for (std::size_t count = 0;;) {
    stream_.getline(buffer_.data() + count, static_cast<std::streamsize>(buffer_.size() - count));
    count += static_cast<std::size_t>(stream_.gcount());
    if (stream_.bad()) throw UserError(fmt::format("{}: error: cannot be read", file_));
    // gcount() includes the delimiter unless the file ends before it.
    if (stream_.eof()) return count;
    if (!stream_.fail()) return count - 1;
    if (buffer_.size() == most) return most;
    stream_.clear();
    buffer_.resize(std::min(most, 2 * buffer_.size()));
  }
}

std::optional<std::string_view> TextLines::next() {
  for (;;) {
    const std::size_t count = read_line();
    if (count == 0 && stream_.eof()) return std::nullopt;
    ++line_;
    std::string_view text(buffer_.data(), std::min(count, buffer_.size()));
    if (line_ == 1 && text.starts_with(kMark)) text.remove_prefix(kMark.size());
    const bool open_ended = stream_.eof() && !text.ends_with('\r');
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.size() > longest_) refuse(line_, longest_ + 1, fmt::format("a line of more than {} bytes", longest_));
    if (check(text).find_first_not_of(kBlanks) == text.npos) continue;
    open_ended_ = open_ended;
    return text;
  }
}

namespace {

/// The quote that ends a value that begins with one, if a comma or the end of the line follows; else npos.
std::size_t closing_quote(std::string_view line, std::size_t opening) {
  for (std::size_t at = opening + 1; at < line.size(); ++at) {
    if (line[at] != '"') continue;
    const std::size_t behind = line.find_first_not_of(kBlanks, at + 1);
    if (behind == line.npos || line[behind] == ',') return at;
  }
  return line.npos;
}

}  // namespace

std::vector<TextField> comma_separated(std::string_view line) {
  std::vector<TextField> fields;
  for (std::size_t from = 0;;) {
    const std::size_t begin = line.find_first_not_of(kBlanks, from);
    if (begin != line.npos && line[begin] == '"') {
      if (const std::size_t close = closing_quote(line, begin); close != line.npos) {
        fields.push_back({line.substr(begin + 1, close - begin - 1), static_cast<std::uint32_t>(begin + 2)});
        from = line.find(',', close);
        if (from == line.npos) return fields;
        ++from;
        continue;
      }
    }
    const std::size_t end = std::min(line.find(',', from), line.size());
    const std::size_t first = std::min(line.find_first_not_of(kBlanks, from), end);
    const std::size_t last = line.find_last_not_of(kBlanks, end == 0 ? 0 : end - 1);
    const std::size_t size = first < end && last >= first ? last + 1 - first : 0;
    fields.push_back({line.substr(first, size), static_cast<std::uint32_t>(first + 1)});
    if (end == line.size()) return fields;
    from = end + 1;
  }
}

std::vector<TextField> blank_separated(std::string_view line) {
  std::vector<TextField> words;
  for (std::size_t at = line.find_first_not_of(kBlanks); at != line.npos; at = line.find_first_not_of(kBlanks, at)) {
    const std::size_t end = std::min(line.find_first_of(kBlanks, at), line.size());
    words.push_back({line.substr(at, end - at), static_cast<std::uint32_t>(at + 1)});
    at = end;
  }
  return words;
}

}  // namespace csdsim
