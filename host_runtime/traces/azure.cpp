// The comma-separated values of the Azure LLM inference traces of 2023 and 2024 (github.com/Azure/AzurePublicDataset;
// "Splitwise", ISCA 2024). Dates and times of day count from the first request.
#include <fmt/format.h>

#include <chrono>

#include "base/csv_records.h"
#include "base/text.h"
#include "host_runtime/traces/trace_builder.h"
#include "host_runtime/traces/trace_format.h"

namespace csdsim::host {
namespace {

enum Field : std::size_t { kTimestamp, kInput, kOutput };
const FieldNames kFields{{"TIMESTAMP"}, {"ContextTokens"}, {"GeneratedTokens"}};

[[noreturn]] void refuse(const LocatedValue& value) {
  value.fail(fmt::format("TIMESTAMP: '{}' is not like 2023-11-16 18:17:03.97", printable(value.text)));
}

std::int64_t digits(const LocatedValue& value, std::size_t at, std::size_t count) {
  std::int64_t number = 0;
  for (const char c : value.text.substr(std::min(at, value.text.size()), count)) {
    if (c < '0' || c > '9') refuse(value);
    number = number * 10 + (c - '0');
  }
  if (at + count > value.text.size()) refuse(value);
  return number;
}

/// A point in time: whole seconds since 1970, and picoseconds.
struct Instant {
  std::int64_t second = 0, ps = 0;
};

/// "2023-11-16 18:17:03.9799600", with or without fractions of a second and "+00:00".
Instant instant_of(const LocatedValue& value) {
  const auto part = [&](std::size_t at, std::size_t count) { return static_cast<int>(digits(value, at, count)); };
  using namespace std::chrono;
  const year_month_day day{year{part(0, 4)}, month{static_cast<unsigned>(part(5, 2))},
                           std::chrono::day{static_cast<unsigned>(part(8, 2))}};
  const int hours = part(11, 2), minutes = part(14, 2), seconds = part(17, 2);
  std::string_view rest = value.text.substr(19);
  if (rest.ends_with("+00:00")) rest.remove_suffix(6);
  std::int64_t ps = 0;
  if (rest.starts_with('.') && rest.size() > 1 && rest.size() <= 13) {
    ps = digits(value, 20, rest.size() - 1);
    for (std::size_t digit = rest.size() - 1; digit < 12; ++digit) ps *= 10;
    rest = {};
  }
  const std::string_view marks{"-- ::"};
  for (std::size_t i = 0; i < marks.size(); ++i) {
    const char c = value.text[4 + 3 * i];
    if (c != marks[i] && !(i == 2 && c == 'T')) refuse(value);
  }
  if (!day.ok() || hours > 23 || minutes > 59 || seconds > 60 || !rest.empty()) refuse(value);
  return {std::int64_t{sys_days{day}.time_since_epoch().count()} * 86'400 + hours * 3600 + minutes * 60 + seconds, ps};
}

ServingTrace read(const std::filesystem::path& path, const ServingTraceOptions& options) {
  TraceBuilder builder(path, options, HashMeaning::prefix, 1);
  CsvRecords row(path, kFields, {kInput, kOutput});
  std::optional<Instant> first;
  while (!builder.full() && row.next()) {
    builder.begin_request(row.line());
    builder.add_lengths(row.at(kInput), "ContextTokens", row.at(kOutput), "GeneratedTokens");
    if (!row.has_column(kTimestamp)) continue;
    const LocatedValue timestamp = row.at(kTimestamp);
    const Instant at = instant_of(timestamp);
    if (!first) first = at;
    const std::int64_t seconds = at.second - first->second;
    if (std::abs(seconds) > static_cast<std::int64_t>(kLatestTraceSecond))
      timestamp.fail(fmt::format("TIMESTAMP: more than {:.0f} s from the first one", kLatestTraceSecond));
    builder.add_arrival(timestamp, SimTime{seconds * 1'000'000'000'000 + at.ps - first->ps});
  }
  return builder.finish(builder.full() ? "" : row.torn_note());
}

/// Whether the first line names one of these columns.
bool recognises(std::string_view beginning) {
  const std::string_view heading = beginning.substr(0, beginning.find('\n'));
  return heading.find("ContextTokens") != heading.npos || heading.find("GeneratedTokens") != heading.npos;
}

/// The clock of the trace begins with the first day of the Azure traces.
std::string write(const ServingTrace& trace) {
  require_arrivals(trace, "azure");
  using namespace std::chrono;
  constexpr std::int64_t kTick = 100'000;  // picoseconds; the file has seven digits
  std::string text = "TIMESTAMP,ContextTokens,GeneratedTokens\n";
  for (const TracedRequest& r : trace.requests) {
    const std::int64_t ticks = r.arrival.ps / kTick, second = ticks / 10'000'000;
    const year_month_day day{sys_days{year{2023} / November / 16} + days{second / 86'400}};
    text += fmt::format("{:04}-{:02}-{:02} {:02}:{:02}:{:02}.{:07},{},{}\n", static_cast<int>(day.year()),
                        static_cast<unsigned>(day.month()), static_cast<unsigned>(day.day()), second / 3600 % 24,
                        second / 60 % 60, second % 60, ticks % 10'000'000, r.prompt, r.output);
  }
  return text;
}

}  // namespace

const TraceFormat kAzureFormat{
    "azure", "comma-separated values of Azure: TIMESTAMP (date and time), ContextTokens, GeneratedTokens", recognises,
    read, write};

}  // namespace csdsim::host
