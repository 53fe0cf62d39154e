#include "experiment/block_io/requests/trace_reader.h"

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

std::uint64_t TraceReader::number(const TextField& field, std::string_view what) const {
  std::uint64_t value = 0;
  const char* const end = field.text.data() + field.text.size();
  const auto [stop, code] = std::from_chars(field.text.data(), end, value);
  if (field.text.empty() || code == std::errc::invalid_argument || (code == std::errc() && stop != end))
    fail(field, fmt::format("{}: '{}' is not a whole number", what, printable(field.text)));
  if (code != std::errc()) fail(field, fmt::format("{}: {} is too large", what, printable(field.text)));
  return value;
}

std::uint32_t TraceReader::stream_of(std::string_view name, const TextField& field) {
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
