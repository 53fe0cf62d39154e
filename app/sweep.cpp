#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>

#include "app/commands.h"
#include "base/error.h"
#include "experiment/experiments.h"
#include "experiment/runner.h"
#include "launch/input_files.h"
#include "launch/point_runner.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

ordered_json axis_value(const std::string& text) {
  if (!text.empty() && text.find_first_not_of("0123456789") == std::string::npos) return std::stoull(text);
  return text;
}

launch::Point launch_point(const scenario::SweepPoint& point, launch::InputFiles& inputs) {
  launch::Point result{.name = point.name, .axes = {}, .fingerprint = fingerprint(point.resolved.scenario, inputs)};
  for (const auto& [path, value] : point.axes) result.axes.emplace_back(path, axis_value(value));
  return result;
}

/// Whether a path is the other one, or a map that holds it.
bool holds(const std::string& outer, const std::string& path) {
  return path.starts_with(outer) && (path.size() == outer.size() || path[outer.size()] == '.');
}

/// UserError for an override that no point would have, because an axis sets the same key.
void refuse_set_axes(const std::vector<std::string>& overrides, const scenario::SweepPoint& point) {
  for (const std::string& set : overrides)
    for (const auto& [axis, value] : point.axes)
      if (const std::string path = set.substr(0, set.find('=')); holds(axis, path) || holds(path, axis))
        throw UserError(fmt::format(
            "--set {}: {} is an axis of the sweep; change the axis: --set 'sweep.axes.{}=[...]'", set, axis, axis));
}

void print_progress(const launch::PointEvent& event, bool quiet) {
  std::fputs(event.said.c_str(), stderr);
  if (quiet) return;
  std::fprintf(stderr, "[%zu/%zu] %s: %s\n", event.finished, event.total, event.name.c_str(), event.what.c_str());
}

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
  return value.is_string() ? value.get<std::string>() : value.dump();
}

/// The metric that a sweep is about, and the columns of its table.
struct Headline {
  std::string metric;
  std::vector<std::string> columns;
};
Headline headline(const launch::SweepRow& row) {
  const ordered_json& metrics = row.result["metrics"];
  if (metrics.contains("iops")) return {"iops", {"iops", "latency_mean_ns", "latency_p99_ns"}};
  if (!metrics.contains("decode_tokens_per_s")) return {"tokens_per_s", {"tokens_per_s", "ttft_s"}};
  return {"decode_tokens_per_s", {"decode_tokens_per_s", "tpot_s", "ttft_s", "kv_access_share"}};
}

std::string bound_text(const ordered_json& result) {
  const ordered_json breakdown = result.value("breakdown", ordered_json::object());
  if (!breakdown.contains("decode")) return "";
  const std::string bound = breakdown["decode"]["bound_by"];
  return fmt::format("{} {:.0f} %", bound, breakdown["decode"]["utilization"][bound].get<double>() * 100);
}

std::string sweep_table(const std::vector<launch::SweepRow>& rows, const Headline& head) {
  std::vector<std::string> header;
  for (const auto& [path, value] : rows.front().axes) header.push_back(short_name(path));
  header.insert(header.end(), head.columns.begin(), head.columns.end());
  header.emplace_back("decode bound by");
  report::Table table(header);
  for (const launch::SweepRow& row : rows) {
    std::vector<std::string> cells;
    for (const auto& [path, value] : row.axes) cells.push_back(value_text(value));
    const ordered_json metrics = row.error.empty() ? row.result["metrics"] : ordered_json::object();
    for (const std::string& column : head.columns)
      cells.push_back(metrics.contains(column) ? report::short_number(metrics[column].get<double>()) : "-");
    cells.push_back(row.error.empty() ? bound_text(row.result) : "failed");
    table.add_row(cells);
  }
  return table.to_text();
}

/// For each axis: the ratio of the headline metric at its last value to that at its first, all other axes equal.
std::string sweep_meaning(const std::vector<launch::SweepRow>& rows) {
  const std::string metric = headline(rows.front()).metric;
  std::string text;
  for (std::size_t axis = 0; axis < rows.front().axes.size(); ++axis) {
    const std::string& path = rows.front().axes[axis].first;
    const ordered_json first = rows.front().axes[axis].second;
    const ordered_json last = rows.back().axes[axis].second;
    if (first == last) continue;
    std::map<std::string, std::pair<double, double>> pairs;  // by the values of the other axes
    for (const launch::SweepRow& row : rows) {
      std::string others;
      for (std::size_t a = 0; a < row.axes.size(); ++a)
        if (a != axis) others += value_text(row.axes[a].second) + "|";
      const double value = row.result["metrics"].value(metric, 0.0);
      if (row.axes[axis].second == first) pairs[others].first = value;
      if (row.axes[axis].second == last) pairs[others].second = value;
    }
    double smallest = INFINITY;
    double largest = 0;
    for (const auto& [others, pair] : pairs) {
      if (pair.first <= 0 || pair.second <= 0) continue;
      smallest = std::min(smallest, pair.second / pair.first);
      largest = std::max(largest, pair.second / pair.first);
    }
    if (largest == 0) continue;
    const std::string range = largest - smallest < 0.005 * largest ? fmt::format("{:.2f}", largest)
                                                                   : fmt::format("{:.2f} to {:.2f}", smallest, largest);
    text += fmt::format("{} from {} to {}: {} is {} times as high.\n", short_name(path), value_text(first),
                        value_text(last), metric, range);
  }
  return text;
}

}  // namespace

int sweep(const SweepArguments& arguments) {
  const scenario::Loaded loaded = experiment::load_scenario(arguments.scenario, arguments.overrides);
  for (const std::string& note : loaded.base.notes) std::fprintf(stderr, "%s\n", note.c_str());
  if (loaded.points.empty())
    throw UserError(
        fmt::format("{}: has no sweep; add one, e.g. sweep: {{axes: {{platform.device.flash.channels: [4, 8]}}}}",
                    arguments.scenario.string()));
  const std::filesystem::path directory =
      arguments.out.value_or(std::filesystem::path("out") / loaded.base.scenario.name);
  refuse_set_axes(arguments.overrides, loaded.points.front());
  launch::InputFiles inputs;
  std::vector<launch::Point> points;
  for (const scenario::SweepPoint& point : loaded.points) points.push_back(launch_point(point, inputs));
  launch::PointRunner runner(
      std::move(points),
      {.directory = directory,
       .run =
           [&](std::size_t index, const std::filesystem::path& out) {
             return run_point(loaded.points[index].resolved.scenario, inputs, out);
           },
       .jobs = arguments.jobs,
       .resume = arguments.resume,
       .progress = [&](const launch::PointEvent& event) { print_progress(event, arguments.quiet); }});
  write_origins(loaded.base, directory);
  const int status = runner.run();
  const std::vector<launch::SweepRow> rows = runner.rows();
  std::vector<launch::SweepRow> good;
  std::copy_if(rows.begin(), rows.end(), std::back_inserter(good),
               [](const launch::SweepRow& r) { return r.error.empty(); });
  if (good.empty()) return status;
  if (arguments.format == Format::csv) {
    fmt::print("{}", report::read_file(directory / "results.csv"));
  } else if (arguments.format == Format::json) {
    ordered_json all = ordered_json::array();
    for (const launch::SweepRow& row : rows)
      all.push_back(row.error.empty() ? row.result : ordered_json{{"name", row.name}, {"error", row.error}});
    fmt::print("{}\n", all.dump(2));
  } else {
    fmt::print("{}\n{}", sweep_table(rows, headline(good.front())), sweep_meaning(good));
    if (good.front().result["stats"].contains("simulated"))
      fmt::print("{}.\n", good.front().result["stats"]["simulated"].get<std::string>());
    fmt::print("All figures: {}; pictures: csdsim report {}\n", (directory / "results.csv").string(),
               directory.string());
  }
  return status;
}

}  // namespace csdsim::app
