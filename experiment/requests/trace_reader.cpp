#include "experiment/requests/trace_reader.h"

#include <fmt/format.h>

#include <charconv>
#include <limits>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::experiment::workload {

namespace {

/// Limit of disks and files of a trace; a file with more is considered broken.
constexpr std::uint32_t kMostStreams = 1 << 16;

}  // namespace

TraceLines::TraceLines(const std::string& file)
    : file_(file), stream_(file, std::ios::binary), buffer_(kLongestLine + 2) {
  if (!stream_) throw UserError(fmt::format("{}: cannot be opened", file));
}

void TraceLines::fail(std::uint64_t line, std::uint64_t column, const std::string& message) const {
  throw UserError(fmt::format("{}:{}:{}: error: {}", file_, line, column, message));
}

std::optional<std::string_view> TraceLines::next() {
  for (;;) {
    stream_.getline(buffer_.data(), static_cast<std::streamsize>(buffer_.size()));
    const auto count = static_cast<std::size_t>(stream_.gcount());
    if (stream_.bad()) throw UserError(fmt::format("{}: cannot be read", file_));
    if (count == 0 && stream_.eof()) return std::nullopt;
    ++line_;
    // gcount() includes the delimiter unless the file ends before it.
    const std::size_t length = stream_.eof() || stream_.fail() ? count : count - 1;
    if (stream_.fail() || length > kLongestLine)
      fail(line_, kLongestLine + 1, fmt::format("a line of more than {} characters", kLongestLine));
    std::string_view text(buffer_.data(), length);
    if (const std::size_t nul = text.find('\0'); nul != text.npos) fail(line_, nul + 1, "a NUL character: not a trace");
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.find_first_not_of(" \t") != text.npos) return text;
  }
}

std::uint64_t TraceReader::number(const TraceField& field, std::string_view what) const {
  std::uint64_t value = 0;
  const char* const end = field.text.data() + field.text.size();
  const auto [stop, code] = std::from_chars(field.text.data(), end, value);
  if (field.text.empty() || code == std::errc::invalid_argument || (code == std::errc() && stop != end))
    fail(field, fmt::format("{}: '{}' is not a whole number", what, printable(field.text)));
  if (code != std::errc()) fail(field, fmt::format("{}: {} is too large", what, printable(field.text)));
  return value;
}

std::uint32_t TraceReader::stream_of(std::string_view name, const TraceField& field) {
  if (const auto known = streams_.find(name); known != streams_.end()) return known->second;
  if (streams_.size() >= kMostStreams) fail(field, fmt::format("more than {} disks or files", kMostStreams));
  const auto number = static_cast<std::uint32_t>(streams_.size());
  streams_.emplace(name, number);
  return number;
}

std::unique_ptr<TraceReader> open_trace(TraceFormat format, const std::string& file) {
  if (format == TraceFormat::msr) return std::make_unique<MsrTrace>(file);
  return std::make_unique<FioTrace>(file);
}

}  // namespace csdsim::experiment::workload
