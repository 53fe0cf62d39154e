#include "app/sweep_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "app/standard_output.h"
#include "base/text.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"
#include "scenario/axis_range.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

/// The last part of a dotted path: "channels".
std::string short_name(const std::string& path) {
  const std::size_t dot = path.rfind('.');
  const std::string last = path.substr(dot + 1);
  // "kind" and "preset" mean nothing without the key before them.
  if (dot == std::string::npos || (last != "kind" && last != "preset")) return last;
  const std::size_t before = path.rfind('.', dot - 1);
  return path.substr(before == std::string::npos ? 0 : before + 1);
}

std::string value_text(const ordered_json& value) {
  if (value.is_null()) return "-";
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The metric that a sweep is about, the columns of its table, and the part of a run of which it says what binds; a
/// workload may have neither the first nor the last.
struct Headline {
  std::string metric;
  std::vector<std::string> columns;
  std::string part;
};
Headline headline(const launch::SweepRow& row) {
  const ordered_json& metrics = row.result["metrics"];
  if (metrics.contains("iops")) return {"iops", {"iops", "latency_mean_ns", "latency_p99_ns"}, "measured"};
  if (!metrics.contains("tokens_per_s")) {  // a workload with metrics of its own
    Headline head;
    for (const auto& [name, value] : metrics.items())
      if (value.is_number() && head.columns.size() < 4) head.columns.push_back(name);
    return head;
  }
  if (metrics.contains("prefix_hit_rate"))
    return {"request_ttft_mean_s",
            {"request_ttft_mean_s", "request_ttft_p99_s", "prefix_hit_rate", "tokens_per_s", "drive_lifetime_years"},
            ""};
  if (!metrics.contains("decode_tokens_per_s")) return {"tokens_per_s", {"tokens_per_s", "ttft_s"}, "decode"};
  return {"decode_tokens_per_s", {"decode_tokens_per_s", "tpot_s", "ttft_s", "kv_access_share"}, "decode"};
}

/// What binds in a part of a run, and how busy it is, "flash_channels 97 %"; where that does not explain the rate, what
/// requests wait for as well: "flash_arrays 72 %, plane_wait 80 %".
std::string bound_text(const ordered_json& result, const std::string& part) {
  const ordered_json breakdown = result.value("breakdown", ordered_json::object());
  if (!breakdown.contains(part) || !breakdown[part].contains("bound_by")) return "";
  const ordered_json& of = breakdown[part];
  const std::string bound = of["bound_by"];
  const std::string text = fmt::format("{} {:.0f} %", bound, of["utilization"][bound].get<double>() * 100);
  if (!of.contains("waits_for")) return text;
  return text + fmt::format(", {} {:.0f} %", of["waits_for"].get_ref<const std::string&>(),
                            of["waits_for_share"].get<double>() * 100);
}

std::string sweep_table(const std::vector<launch::SweepRow>& rows, const Headline& head) {
  std::vector<std::string> header;
  for (const auto& [path, value] : rows.front().axes) header.push_back(short_name(path));
  header.insert(header.end(), head.columns.begin(), head.columns.end());
  const bool failed = std::ranges::any_of(rows, [](const launch::SweepRow& row) { return !row.error.empty(); });
  if (!head.part.empty() || failed) header.emplace_back(head.part == "decode" ? "decode bound by" : "bound by");
  report::Table table(header);
  for (const launch::SweepRow& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [path, value] : row.axes) cells.push_back(value_text(value));
    const ordered_json metrics = row.error.empty() ? row.result["metrics"] : ordered_json::object();
    for (const std::string& column : head.columns)
      cells.push_back(metrics.contains(column) ? report::metric_text(column, metrics[column].get<double>()) : "-");
    if (cells.size() < header.size()) cells.push_back(row.error.empty() ? bound_text(row.result, head.part) : "failed");
    table.add_row(cells);
  }
  return table.to_text();
}

/// How many points have failed, and why.
std::string failures_text(const std::vector<launch::SweepRow>& rows) {
  std::vector<PointFailure> failures;
  for (const launch::SweepRow& row : rows)
    if (!row.error.empty()) failures.push_back({row.name, row.error});
  return failures.empty()
             ? ""
             : fmt::format("{} of {} points failed:\n{}", failures.size(), rows.size(), failures_text(failures));
}

/// A line for each point whose result other points share.
std::string alike_text(const std::vector<const launch::SweepRow*>& rows) {
  std::map<std::string, std::vector<std::string>> followers;
  for (const launch::SweepRow* row : rows)
    if (!row->same_as.empty()) followers[row->same_as].push_back(row->name);
  std::string text;
  for (const auto& [first, others] : followers)
    text += fmt::format("Simulated once, because nothing that they use differs: {}, {}.\n", first, join(others));
  return text;
}

/// Notes of the results, at most four.
std::string notes_text(const std::vector<const launch::SweepRow*>& rows) {
  constexpr std::size_t kMost = 4;
  std::string text;
  std::size_t found = 0;
  for (const launch::SweepRow* row : rows) {
    if (!row->same_as.empty() || !row->result.contains("stats")) continue;
    const ordered_json notes = row->result["stats"].value("notes", ordered_json::array());
    for (const ordered_json& note : notes)
      if (++found <= kMost) text += fmt::format("{}: {}\n", row->name, note.get<std::string>());
  }
  if (found > kMost) text += fmt::format("{} more notes in results of points (stats.notes)\n", found - kMost);
  return text;
}

/// The place of each value of an axis among all of its values, if they have an order: they are numbers, or two.
std::map<std::string, std::size_t> places_of(const std::vector<const launch::SweepRow*>& rows, std::size_t axis) {
  std::vector<std::string> values;
  bool numbers = true;
  for (const launch::SweepRow* row : rows) {
    const std::string value = value_text(row->axes[axis].second);
    if (std::ranges::find(values, value) == values.end()) values.push_back(value);
    numbers = numbers && scenario::number_of(value);
  }
  if (numbers)
    std::ranges::stable_sort(values, {}, [](const std::string& value) { return *scenario::number_of(value); });
  else if (values.size() > 2)
    return {};
  std::map<std::string, std::size_t> places;
  for (const std::string& value : values) places.emplace(value, places.size());
  return places;
}

/// Two rows that differ in one axis alone, as far apart on it as rows with their other values are.
struct AxisEnds {
  const launch::SweepRow* first;
  const launch::SweepRow* last;
};
std::vector<AxisEnds> ends_along(const std::vector<const launch::SweepRow*>& rows, std::size_t axis) {
  std::map<std::vector<std::string>, AxisEnds> found;  // by the values of the other axes
  for (const launch::SweepRow* row : rows) {
    std::vector<std::string> others;
    for (std::size_t a = 0; a < row->axes.size(); ++a)
      if (a != axis) others.push_back(value_text(row->axes[a].second));
    found.try_emplace(std::move(others), AxisEnds{row, row}).first->second.last = row;
  }
  std::vector<AxisEnds> ends;
  for (const auto& [others, pair] : found) ends.push_back(pair);
  return ends;
}

/// "where queue_depth is 1": the values of other axes that `part` has, as far as `all` has more. With the share of the
/// pairs with these values that are in `part`, unless it is all.
std::string where_text(const std::vector<AxisEnds>& part, const std::vector<AxisEnds>& all, std::size_t axis) {
  constexpr std::size_t kMostValues = 4;
  const auto values = [](const std::vector<AxisEnds>& ends, std::size_t a) {
    std::vector<std::string> list;
    for (const AxisEnds& pair : ends)
      if (const std::string value = value_text(pair.first->axes[a].second);
          std::ranges::find(list, value) == list.end())
        list.push_back(value);
    return list;
  };
  std::vector<AxisEnds> described = all;
  std::vector<std::string> texts;
  for (std::size_t a = 0; a < part.front().first->axes.size(); ++a) {
    if (a == axis) continue;
    const std::vector<std::string> own = values(part, a);
    if (own.size() == values(all, a).size() || own.size() > kMostValues) continue;
    texts.push_back(fmt::format("{} is {}", short_name(part.front().first->axes[a].first), join(own, " or ")));
    std::erase_if(described, [&](const AxisEnds& pair) {
      return std::ranges::find(own, value_text(pair.first->axes[a].second)) == own.end();
    });
  }
  std::string text = texts.empty() ? "" : fmt::format(", where {}", join(texts, " and "));
  if (part.size() < described.size()) text += fmt::format(", in {} of {} cases", part.size(), described.size());
  return text;
}

/// "iops is 1.77 times as high": the last of each pair against its first. Empty where the metric is not above 0.
std::string change_text(const std::vector<AxisEnds>& ends, const std::string& metric) {
  double smallest = INFINITY;
  double largest = 0;
  for (const AxisEnds& pair : ends) {
    const double first = pair.first->result["metrics"].value(metric, 0.0);
    const double last = pair.last->result["metrics"].value(metric, 0.0);
    if (first <= 0 || last <= 0) continue;
    smallest = std::min(smallest, last / first);
    largest = std::max(largest, last / first);
  }
  if (largest == 0) return "";
  if (smallest > 0.995 && largest < 1.005) return fmt::format("{} does not change", metric);
  const std::string range = largest - smallest < 0.005 * largest ? fmt::format("{:.2f}", largest)
                                                                 : fmt::format("{:.2f} to {:.2f}", smallest, largest);
  return fmt::format("{} is {} times as high", metric, range);
}

/// For each axis whose values have an order: how the headline metric changes between the ends of the axis, all other
/// axes equal. Where points are missing, between the widest ends that exist. The values of `seed` are samples.
std::string sweep_meaning(const std::vector<const launch::SweepRow*>& rows) {
  constexpr std::size_t kMostRanges = 2;  // ranges of an axis with a line each; the others share a line
  const std::string metric = headline(*rows.front()).metric;
  std::string text;
  for (std::size_t axis = 0; axis < rows.front()->axes.size(); ++axis) {
    const std::string& path = rows.front()->axes[axis].first;
    const auto places = places_of(rows, axis);
    if (path == "seed" || places.size() < 2) continue;
    const std::vector<AxisEnds> all = ends_along(rows, axis);
    // The widest range first; those of one width in the order of their values.
    std::map<std::tuple<std::ptrdiff_t, std::size_t, std::size_t>, std::vector<AxisEnds>> ranges;
    for (const AxisEnds& pair : all) {
      const std::size_t first = places.at(value_text(pair.first->axes[axis].second));
      const std::size_t last = places.at(value_text(pair.last->axes[axis].second));
      const std::ptrdiff_t width = static_cast<std::ptrdiff_t>(last) - static_cast<std::ptrdiff_t>(first);
      if (width != 0) ranges[{-std::abs(width), first, last}].push_back(pair);
    }
    std::vector<AxisEnds> others;
    std::size_t shown = 0;
    for (const auto& [range, ends] : ranges) {
      if (++shown > kMostRanges && ranges.size() > kMostRanges + 1) {
        others.insert(others.end(), ends.begin(), ends.end());
      } else if (const std::string change = change_text(ends, metric); !change.empty()) {
        text += fmt::format("{} from {} to {}{}: {}.\n", short_name(path),
                            value_text(ends.front().first->axes[axis].second),
                            value_text(ends.front().last->axes[axis].second), where_text(ends, all, axis), change);
      }
    }
    if (const std::string change = change_text(others, metric); !change.empty())
      text += fmt::format("{} over {} other ranges: {}.\n", short_name(path), ranges.size() - kMostRanges, change);
  }
  return text;
}

}  // namespace

std::string failures_text(const std::vector<PointFailure>& failures) {
  constexpr std::size_t kMost = 4;
  std::string text;
  for (std::size_t i = 0; i < std::min(failures.size(), kMost); ++i)
    text += fmt::format("  {}: {}\n", failures[i].name, failures[i].reason.substr(0, failures[i].reason.find('\n')));
  if (failures.size() > kMost) text += fmt::format("  and {} more\n", failures.size() - kMost);
  return text;
}

launch::ResultParts printed_parts(const report::Search& search, Format format) {
  if (format == Format::json) return {};
  launch::ResultParts parts{"metrics",         "wall",       "breakdown.decode", "breakdown.measured",
                            "stats.simulated", "stats.notes"};
  for (const std::string& name : search.names())
    parts.insert(name.substr(0, std::min(name.find('.', name.find('.') + 1), name.size())));
  return parts;
}

void print_rows(const std::vector<launch::SweepRow>& rows, std::size_t points, const report::Search& search,
                const std::filesystem::path& directory, Format format) {
  std::vector<const launch::SweepRow*> good;
  for (const launch::SweepRow& row : rows)
    if (row.error.empty()) good.push_back(&row);
  if (good.empty()) return;
  if (format == Format::csv || format == Format::json_lines) {
    print_result(report::read_file(directory / (format == Format::csv ? "results.csv" : "results.jsonl")));
  } else if (format == Format::json) {
    ordered_json all = ordered_json::array();
    for (const launch::SweepRow& row : rows)
      all.push_back(row.error.empty() ? row.result : ordered_json{{"name", row.name}, {"error", row.error}});
    print_result(fmt::format("{}\n", all.dump(2)));
  } else {
    print_result(fmt::format("{}\n{}", sweep_table(rows, headline(*good.front())),
                             search.evaluations == 0 ? sweep_meaning(good) : ""));
    print_result(alike_text(good) + notes_text(good) + failures_text(rows));
    if (const ordered_json& stats = good.front()->result["stats"]; stats.contains("simulated"))
      print_result(fmt::format("{}.\n", stats["simulated"].get<std::string>()));
  }
  if (!search.empty()) {
    std::vector<ordered_json> results;
    std::vector<std::string> names;
    for (const launch::SweepRow& row : rows) {
      results.push_back(row.result);
      names.push_back(row.name);
    }
    const report::Found found = report::search_points(search, results);
    report::write_file(directory / "search.json", report::search_document(search, found, names, points).dump(2) + "\n");
    if (format == Format::table)
      print_result(fmt::format("\n{}", report::search_text(search, found, results, names, points)));
  }
  if (format == Format::table)
    print_result(fmt::format("All figures: {}; pictures: csdsim report {}\n", (directory / "results.csv").string(),
                             directory.string()));
}

}  // namespace csdsim::app
