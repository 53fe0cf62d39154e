#include "report/text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>

#include "report/csv.h"
#include "report/table.h"

namespace csdsim::report {

using nlohmann::ordered_json;

namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string cell(const ordered_json& value) {
  if (value.is_number_float()) return short_number(value.get<double>());
  if (value.is_number()) return short_number(static_cast<double>(value.get<std::int64_t>()));
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The value of a metric; texts and lists as they are.
std::string metric_cell(std::string_view name, const ordered_json& value) {
  return value.is_number() ? metric_text(name, value.get<double>()) : cell(value);
}

/// Four digits, with the point among them.
int digits_after_point(double magnitude) {
  return magnitude >= 1000 ? 0 : magnitude >= 100 ? 1 : magnitude >= 10 ? 2 : 3;
}

struct MetricUnit {
  std::string_view unit;
  double scale = 1;  ///< factor of the metric's number
};
/// The unit that the name of a metric ends in; none for counts, shares and rates of what has none.
std::optional<MetricUnit> unit_of(std::string_view name) {
  if (name.ends_with("_j")) return MetricUnit{"J"};
  if (name.ends_with("bytes_per_s")) return MetricUnit{"B/s"};
  if (name.find("_per_") != name.npos) return {};
  if (name.ends_with("_ns")) return MetricUnit{"s", 1e-9};
  if (name.ends_with("_s")) return MetricUnit{"s"};
  if (name.starts_with("bytes_") || name.ends_with("_bytes")) return MetricUnit{"B"};
  return {};
}

/// One row per stage, one column per kind of request.
std::string stage_table(const ordered_json& kinds) {
  std::vector<std::string> heading{"mean time by stage"};
  std::vector<std::string> stages;
  for (const auto& [kind, means] : kinds.items()) {
    heading.push_back(kind);
    for (const auto& [stage, mean] : means.items())
      if (std::ranges::find(stages, stage) == stages.end()) stages.push_back(stage);
  }
  Table table(heading);
  for (const std::string& stage : stages) {
    std::vector<std::string> row{stage};
    for (const auto& [kind, means] : kinds.items())
      row.push_back(means.contains(stage) ? metric_cell("mean_ns", means[stage]) : "-");
    table.add_row(row);
  }
  return table.to_text();
}

}  // namespace

std::string short_number(double value) {
  static constexpr std::array kPrefixes{"", " k", " M", " G", " T", " P", " E"};
  if (value == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  std::size_t prefix = 0;
  double magnitude = std::abs(value);
  // Up to five digits stand without a prefix; with one, three stand before the point.
  while (magnitude >= (prefix == 0 ? 99'999.5 : 999.95) && prefix + 1 < kPrefixes.size()) {
    magnitude /= 1000;
    value /= 1000;
    ++prefix;
  }
  if (prefix == 0 && value == std::floor(value)) return fmt::format("{:.0f}", value);
  const int digits = magnitude < 1 && prefix == 0 ? 6 : digits_after_point(magnitude);
  return fmt::format("{:.{}f}{}", value, digits, kPrefixes[prefix]);
}

std::string metric_text(std::string_view name, double value) {
  const std::optional<MetricUnit> of = unit_of(name);
  if (!of || !std::isfinite(value)) return short_number(value);
  if (value == 0) return fmt::format("0 {}", of->unit);
  value *= of->scale;
  struct Prefix {
    std::string_view name;
    double scale;
  };
  static constexpr std::array kPrefixes{Prefix{"E", 1e18}, Prefix{"P", 1e15}, Prefix{"T", 1e12}, Prefix{"G", 1e9},
                                        Prefix{"M", 1e6},  Prefix{"k", 1e3},  Prefix{"", 1},     Prefix{"m", 1e-3},
                                        Prefix{"u", 1e-6}, Prefix{"n", 1e-9}, Prefix{"p", 1e-12}};
  // Bytes and their rates have no parts, and nobody counts kiloseconds.
  const bool whole = of->unit.starts_with('B'), time = of->unit == "s";
  const Prefix* found = &kPrefixes.back();
  for (const Prefix& prefix : kPrefixes) {
    if (time && prefix.scale > 1) continue;
    found = &prefix;
    if (std::abs(value) >= prefix.scale * 0.99995 || (whole && prefix.scale == 1)) break;
  }
  const double shown = value / found->scale;
  if (whole && found->scale == 1 && shown == std::floor(shown)) return fmt::format("{:.0f} {}", shown, of->unit);
  return fmt::format("{:.{}f} {}{}", shown, digits_after_point(std::abs(shown)), found->name, of->unit);
}

std::string rows_text(const ordered_json& rows) {
  if (rows.empty()) return {};
  std::vector<std::string> heading;
  for (const auto& [key, value] : rows[0].items()) heading.push_back(key);
  Table table(heading);
  for (const ordered_json& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [key, value] : row.items()) cells.push_back(cell(value));
    table.add_row(cells);
  }
  return table.to_text();
}

std::string result_text(const ordered_json& document, const std::string& meaning, Format format) {
  if (format == Format::json) return document.dump(2) + "\n";
  const ordered_json& metrics = document.at("metrics");
  if (format == Format::csv) {
    ordered_json row = ordered_json::object();
    row["name"] = document.at("name");
    row.update(metrics);
    row.update(document.at("wall"));
    return csv_rows(ordered_json::array({row}));
  }
  Table table({"metric", "value"});
  for (const ordered_json& part : {metrics, document.at("wall")})
    for (const auto& [key, value] : part.items()) table.add_row({key, metric_cell(key, value)});
  std::string text = fmt::format("{}\n\n{}", document.at("name").get<std::string>(), table.to_text());
  if (document.contains("breakdown") && document["breakdown"].contains("latency_stages"))
    text += fmt::format("\n{}", stage_table(document["breakdown"]["latency_stages"]));
  if (document.contains("tables"))
    for (const auto& [name, rows] : document["tables"].items()) text += fmt::format("\n{}\n{}", name, rows_text(rows));
  if (document.contains("comparison")) {
    // With another attention method a text that differs is no error.
    Table comparison({"compared with", "attention method", "tokens equal", "of", "outputs", "decode tokens/s"});
    for (const auto& [name, entry] : document["comparison"].items()) {
      const bool decodes = entry.contains("metrics") && entry["metrics"].contains("decode_tokens_per_s");
      const bool same_method = entry["same_method"].get<bool>();
      const bool identical = entry["attention_outputs_identical"].get<bool>();
      comparison.add_row({name, same_method ? "the same" : "another", cell(entry["tokens_equal"]),
                          cell(entry["tokens_compared"]),
                          identical ? "identical" : (same_method ? "different" : "of another method"),
                          decodes ? cell(entry["metrics"]["decode_tokens_per_s"]) : "-"});
    }
    text += fmt::format("\n{}", comparison.to_text());
  }
  if (document.contains("text")) {
    text += "\n";
    for (const auto& one : document["text"]) text += fmt::format("> {}\n", one.get<std::string>());
  }
  return meaning.empty() ? text : fmt::format("{}\n{}\n", text, meaning);
}

namespace {

/// "about 40 s left", if all of the work takes as long as the share of it that is done.
std::string time_left(double elapsed_s, double share) {
  const double left_s = elapsed_s / share * (1 - share);
  return left_s < 90 ? fmt::format("about {:.0f} s left", left_s) : fmt::format("about {:.0f} min left", left_s / 60);
}

}  // namespace

std::string progress_text(std::string_view label, std::string_view what, std::uint64_t done, std::uint64_t total,
                          double elapsed_s) {
  constexpr double kShown = 5;  // seconds; an earlier estimate would be too uncertain
  std::string text = fmt::format("{}: {} of {} {}", label, done, total, what);
  if (total == 0) return text;
  const double share = static_cast<double>(done) / static_cast<double>(total);
  text += fmt::format(" ({:.0f} %", 100 * share);
  if (elapsed_s >= kShown && done > 0 && done < total) text += ", " + time_left(elapsed_s, share);
  return text + ")";
}

Progress::Progress(std::string label, bool quiet)
    : label_(std::move(label)), quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1), last_(now_seconds()) {}

Progress::~Progress() {
  if (drawn_ && terminal_) std::fputs("\r\033[K", stderr);
}

void Progress::update(std::string_view what, std::uint64_t done, std::uint64_t total) {
  if (quiet_) return;
  const double now = now_seconds();
  if (total != total_ || what != what_) {
    what_ = what;
    total_ = total;
    began_ = now;
  }
  if (now - last_ < (terminal_ ? 0.1 : 10.0)) return;
  last_ = now;
  drawn_ = true;
  std::fprintf(stderr, terminal_ ? "\r\033[K%s" : "%s\n",
               progress_text(label_, what, done, total, now - began_).c_str());
  std::fflush(stderr);
}

std::string step_text(std::string_view what, std::size_t done, std::size_t total, double elapsed_s) {
  std::string text = fmt::format("[{}/{}] {}", done + 1, total, what);
  if (done == 0) return text;
  return fmt::format("{} ({})", text, time_left(elapsed_s, static_cast<double>(done) / static_cast<double>(total)));
}

Steps::Steps() : start_(now_seconds()) {}

void Steps::operator()(std::string_view what, std::size_t done, std::size_t total) const {
  std::fprintf(stderr, "%s\n", step_text(what, done, total, now_seconds() - start_).c_str());
}

}  // namespace csdsim::report
