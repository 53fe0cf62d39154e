#include "experiment/generation/request_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <string_view>

#include "base/error.h"
#include "base/rng.h"
#include "base/text.h"
#include "base/text_file.h"

namespace csdsim::experiment {

namespace {

constexpr std::uint32_t kMostTokens = 16'777'216;
constexpr double kLatestArrival = 1e6;  // seconds; simulated time is in picoseconds

enum class Column : std::uint8_t { input, output, arrival, timestamp };

struct KnownColumn {
  std::string_view name;
  Column column;
};
constexpr std::array<KnownColumn, 6> kColumns{{{"input_tokens", Column::input},
                                               {"output_tokens", Column::output},
                                               {"arrival_s", Column::arrival},
                                               {"ContextTokens", Column::input},
                                               {"GeneratedTokens", Column::output},
                                               {"TIMESTAMP", Column::timestamp}}};

/// One file of requests, while it is read.
class RequestReader {
 public:
  explicit RequestReader(const std::string& file) : lines_(file) { read_heading(file); }

  /// Adds the next request to the trace. False at the end of the file.
  bool add_next(RequestTrace& trace);
  /// Whether times of day were read, which have no start of a run.
  bool counts_from_first() const { return first_second_.has_value(); }

 private:
  [[noreturn]] void fail(std::uint32_t column, const std::string& message) const {
    lines_.fail(lines_.line(), column, message);
  }
  void read_heading(const std::string& file);
  std::uint32_t tokens(const TextField& field, std::string_view what) const;
  SimTime seconds(const TextField& field) const;
  SimTime time_of_day(const TextField& field);
  std::uint64_t digits(const TextField& field, std::size_t at, std::size_t count) const;

  TextLines lines_;
  std::vector<Column> columns_;
  std::optional<std::int64_t> first_second_;  ///< of the first timestamp
};

void RequestReader::read_heading(const std::string& file) {
  const std::optional<std::string_view> line = lines_.next();
  if (!line) throw UserError(fmt::format("{}: holds no request", file));
  std::vector<std::string> known;
  for (const KnownColumn& column : kColumns) known.emplace_back(column.name);
  const auto is_time = [](Column c) { return c == Column::arrival || c == Column::timestamp; };
  for (const TextField& field : comma_separated(*line)) {
    const auto found = std::ranges::find(kColumns, field.text, &KnownColumn::name);
    if (found == kColumns.end())
      fail(field.column, fmt::format("unknown column '{}'; columns are {}", printable(field.text), join(known)));
    const bool repeated = std::ranges::any_of(
        columns_, [&](Column c) { return c == found->column || (is_time(c) && is_time(found->column)); });
    if (repeated) fail(field.column, fmt::format("a second column for the same: {}", found->name));
    columns_.push_back(found->column);
  }
  for (const auto& [column, name] :
       {std::pair{Column::input, "input_tokens"}, std::pair{Column::output, "output_tokens"}})
    if (std::ranges::find(columns_, column) == columns_.end())
      fail(1, fmt::format("no column {}; the first line names the columns: {}", name, join(known)));
}

std::uint32_t RequestReader::tokens(const TextField& field, std::string_view what) const {
  std::uint32_t value = 0;
  const char* const end = field.text.data() + field.text.size();
  const auto [stop, code] = std::from_chars(field.text.data(), end, value);
  if (field.text.empty() || code != std::errc() || stop != end || value == 0 || value > kMostTokens)
    fail(field.column,
         fmt::format("{}: '{}' is not a whole number from 1 to {}", what, printable(field.text), kMostTokens));
  return value;
}

SimTime RequestReader::seconds(const TextField& field) const {
  double value = 0;
  const char* const end = field.text.data() + field.text.size();
  const auto [stop, code] = std::from_chars(field.text.data(), end, value);
  if (field.text.empty() || code != std::errc() || stop != end || !(value >= 0 && value <= kLatestArrival))
    fail(field.column, fmt::format("arrival_s: '{}' is not a number of seconds from 0 to {:.0f}", printable(field.text),
                                   kLatestArrival));
  return SimTime{std::llround(value * 1e12)};
}

std::uint64_t RequestReader::digits(const TextField& field, std::size_t at, std::size_t count) const {
  std::uint64_t value = 0;
  const std::string_view text = field.text.substr(std::min(at, field.text.size()), count);
  const auto [stop, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.size() != count || code != std::errc() || stop != text.data() + count)
    fail(field.column, fmt::format("TIMESTAMP: '{}' is not like 2023-11-16 18:17:03.97", printable(field.text)));
  return value;
}

/// "2023-11-16 18:17:03.9799600", with or without fractions of a second and "+00:00".
SimTime RequestReader::time_of_day(const TextField& field) {
  const auto part = [&](std::size_t at, std::size_t count) { return static_cast<int>(digits(field, at, count)); };
  using namespace std::chrono;
  const year_month_day day{year{part(0, 4)}, month{static_cast<unsigned>(part(5, 2))},
                           std::chrono::day{static_cast<unsigned>(part(8, 2))}};
  const int hours = part(11, 2), minutes = part(14, 2), whole = part(17, 2);
  std::string_view rest = field.text.substr(19);
  if (rest.ends_with("+00:00")) rest.remove_suffix(6);
  std::int64_t ps = 0;
  if (rest.starts_with('.') && rest.size() <= 13) {
    ps = static_cast<std::int64_t>(digits(field, 20, rest.size() - 1));
    for (std::size_t digit = rest.size() - 1; digit < 12; ++digit) ps *= 10;
    rest = {};
  }
  if (!day.ok() || hours > 23 || minutes > 59 || whole > 60 || !rest.empty())
    fail(field.column, fmt::format("TIMESTAMP: '{}' is not like 2023-11-16 18:17:03.97", printable(field.text)));
  const std::int64_t second =
      std::int64_t{sys_days{day}.time_since_epoch().count()} * 86'400 + hours * 3600 + minutes * 60 + whole;
  if (!first_second_) first_second_ = second;
  if (std::abs(second - *first_second_) > std::int64_t{1'000'000})
    fail(field.column, fmt::format("TIMESTAMP: more than {:.0f} s after the first one", kLatestArrival));
  return SimTime{(second - *first_second_) * 1'000'000'000'000 + ps};
}

bool RequestReader::add_next(RequestTrace& trace) {
  const std::optional<std::string_view> line = lines_.next();
  if (!line) return false;
  const std::vector<TextField> fields = comma_separated(*line);
  if (fields.size() != columns_.size())
    fail(fields.back().column, fmt::format("{} values in {} columns", fields.size(), columns_.size()));
  host::Request request{.id = SequenceId{static_cast<std::uint32_t>(trace.requests.size())}, .line = lines_.line()};
  for (std::size_t i = 0; i < fields.size(); ++i) {
    if (columns_[i] == Column::input) {
      request.prompt = tokens(fields[i], "input_tokens");
    } else if (columns_[i] == Column::output) {
      request.output = tokens(fields[i], "output_tokens");
    } else {
      request.arrival = columns_[i] == Column::arrival ? seconds(fields[i]) : time_of_day(fields[i]);
      if (!trace.requests.empty() && request.arrival < trace.requests.back().arrival)
        fail(fields[i].column, "arrives before the request in the line above; sort the file by arrival");
      trace.arrive = true;
    }
  }
  trace.requests.push_back(request);
  return true;
}

}  // namespace

RequestTrace read_requests(const std::string& file, std::optional<std::uint32_t> limit) {
  RequestReader reader(file);
  RequestTrace trace;
  while ((!limit || trace.requests.size() < *limit) && reader.add_next(trace)) {
  }
  if (trace.requests.empty()) throw UserError(fmt::format("{}: holds no request", file));
  // A time of day has fractions of a second, and so has the first one.
  if (reader.counts_from_first()) {
    const SimTime first = trace.requests.front().arrival;
    for (host::Request& request : trace.requests) request.arrival -= first;
  }
  return trace;
}

void set_poisson_arrivals(RequestTrace& trace, SimTime mean_gap, std::uint64_t seed) {
  Rng rng(seed, "arrivals");
  SimTime at;
  for (host::Request& request : trace.requests)
    request.arrival = at += SimTime{std::llround(-std::log(1 - rng.unit()) * static_cast<double>(mean_gap.ps))};
  trace.arrive = true;
}

}  // namespace csdsim::experiment
