#include <fmt/format.h>

#include <array>
#include <limits>

#include "base/text.h"
#include "experiment/block_io/requests/trace_reader.h"

namespace csdsim::experiment::workload {

namespace {

constexpr std::array<std::string_view, 7> kFields{"Timestamp", "Hostname", "DiskNumber",  "Type",
                                                  "Offset",    "Size",     "ResponseTime"};
constexpr std::int64_t kTickPs = 100'000;  // 100 ns

bool equals_ignoring_case(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if ((a[i] >= 'A' && a[i] <= 'Z' ? a[i] - 'A' + 'a' : a[i]) != lower[i]) return false;
  return true;
}

}  // namespace

std::optional<TraceRecord> MsrTrace::next() {
  std::optional<std::string_view> line = lines_.next();
  if (line && lines_.line() == 1) {
    if (line->starts_with("fio version ")) lines_.fail(1, 1, "this is an iolog of fio (format: fio)");
    if (equals_ignoring_case(comma_separated(*line).front().text, "timestamp")) line = lines_.next();
  }
  if (!line) return std::nullopt;

  const std::vector<TextField> fields = comma_separated(*line);
  if (fields.size() < kFields.size())
    lines_.fail(lines_.line(), line->size() + 1,
                fmt::format("{} of 7 fields: {} is missing (Timestamp,Hostname,DiskNumber,Type,Offset,Size,"
                            "ResponseTime)",
                            fields.size(), kFields[fields.size()]));
  constexpr std::size_t kMost = kFields.size() + 1;  // a placement identifier
  if (fields.size() > kMost) fail(fields[kMost], "more than 8 fields");

  TraceRecord record;
  record.line = lines_.line();
  const std::uint64_t ticks = number(fields[0], kFields[0]);
  if (!start_) start_ = ticks;
  const bool earlier = ticks < *start_;
  const std::uint64_t distance = earlier ? *start_ - ticks : ticks - *start_;
  if (distance > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max() / kTickPs))
    fail(fields[0], fmt::format("Timestamp: more than 106 days {} the first one", earlier ? "before" : "after"));
  const auto since = static_cast<std::int64_t>(distance) * kTickPs;
  record.at = SimTime{earlier ? -since : since};
  if (fields[1].text.empty()) fail(fields[1], "Hostname: is empty");
  number(fields[2], kFields[2]);
  record.stream = stream_of(line->substr(fields[1].column - 1, fields[3].column - 1 - fields[1].column), fields[1]);
  if (equals_ignoring_case(fields[3].text, "read")) {
    record.kind = RequestKind::read;
  } else if (equals_ignoring_case(fields[3].text, "write")) {
    record.kind = RequestKind::write;
  } else {
    fail(fields[3], fmt::format("Type: '{}' is neither Read nor Write", printable(fields[3].text)));
  }
  record.offset = Bytes{number(fields[4], kFields[4])};
  record.offset_column = fields[4].column;
  record.length = Bytes{number(fields[5], kFields[5])};
  record.length_column = fields[5].column;
  if (record.length.value == 0) fail(fields[5], "Size: a request of 0 bytes");
  number(fields[6], kFields[6]);
  if (fields.size() == kMost && !fields[7].text.empty()) {
    const std::uint64_t identifier = number(fields[7], "PlacementIdentifier");
    if (identifier > std::numeric_limits<std::uint16_t>::max())
      fail(fields[7], fmt::format("PlacementIdentifier: {} is too large for 16 bits", identifier));
    if (record.kind == RequestKind::write) record.placement = static_cast<std::uint16_t>(identifier);
    record.placement_column = fields[7].column;
  }
  return record;
}

}  // namespace csdsim::experiment::workload
