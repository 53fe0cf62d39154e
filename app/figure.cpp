#include "app/figure.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/text.h"
#include "experiment/experiments.h"
#include "report/files.h"
#include "report/html_page.h"
#include "report/page_files.h"
#include "scenario/axis_range.h"

namespace csdsim::app {
namespace {

using nlohmann::ordered_json;

/// More lines cannot be told apart in a figure as wide as a column.
constexpr std::size_t kMostLines = 100;

std::string text_of(const ordered_json& value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string last_key(const std::string& path) { return path.substr(path.rfind('.') + 1); }

/// The values of an axis in the order of the sweep.
std::vector<std::string> values_of(const std::vector<launch::SweepRow>& rows, std::size_t axis) {
  std::vector<std::string> values;
  std::unordered_set<std::string> known;
  for (const launch::SweepRow& row : rows)
    if (std::string value = text_of(row.axes[axis].second); known.insert(value).second)
      values.push_back(std::move(value));
  return values;
}

std::size_t axis_of(const std::vector<launch::SweepRow>& rows, const std::optional<std::string>& name) {
  std::vector<std::string> paths;
  for (const auto& [path, unused] : rows.front().axes) paths.push_back(path);
  if (paths.empty()) throw UserError("--plot: a figure needs a sweep; this is one run");
  if (!name) {
    for (std::size_t a = paths.size(); a-- > 0;)
      if (values_of(rows, a).size() > 1) return a;
    return 0;
  }
  for (std::size_t a = 0; a < paths.size(); ++a)
    if (paths[a] == *name || paths[a].ends_with("." + *name)) return a;
  throw UserError(
      fmt::format("--x {}: is no axis of this sweep{}; exists: {}", *name, did_you_mean(*name, paths), join(paths)));
}

void require_metric(const std::vector<launch::SweepRow>& rows, const std::string& metric) {
  std::vector<std::string> names;
  for (const launch::SweepRow& row : rows)
    if (row.error.empty())
      for (const auto& [name, unused] : row.result["metrics"].items()) names.push_back(name);
  if (std::ranges::find(names, metric) == names.end())
    throw UserError(fmt::format("--y {}: no point has this metric{}", metric, did_you_mean(metric, names)));
}

/// The unit of a quantity such as "1.4 GB/s" in base units; counts and shares have none.
std::string base_unit(const std::string& value) {
  const std::size_t unit = value.find_first_not_of("0123456789./ ");
  if (unit == std::string::npos || value[unit] == '%') return "";
  const std::string name = value.substr(unit);
  for (const char* const base : {"B/s", "FLOPS", "Hz", "B", "J", "W", "s"})
    if (name.ends_with(base)) return base;
  return "";
}

std::string unit_of_metric(const std::string& name) {
  for (const auto& [info, runs] : experiment::all_metrics(*experiment::builtin_registries()))
    if (info.name == name && info.unit != "1") return info.unit;
  return "";
}

/// Runs a program; returns its exit status, 127 if it cannot be started.
int run_program(const std::string& program, const std::vector<std::string>& arguments) {
  std::vector<std::string> words{program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_t child = 0;
  if (posix_spawnp(&child, program.c_str(), nullptr, nullptr, pointers.data(), environ) != 0) return 127;
  int status = 0;
  if (waitpid(child, &status, 0) != child || !WIFEXITED(status)) return 1;
  return WEXITSTATUS(status);
}

}  // namespace

std::string figure_metric(const ordered_json& metrics) {
  // A service level is stated for the slowest requests.
  constexpr const char* kTail = "request_ttft_p99_s";
  return metrics.contains(kTail) && metrics.contains("prefix_hit_rate") ? kTail : report::headline(metrics);
}

ordered_json figure_data(const std::vector<launch::SweepRow>& rows, const FigureOptions& options) {
  const std::size_t x = axis_of(rows, options.x);
  const auto good = std::ranges::find_if(rows, [](const launch::SweepRow& row) { return row.error.empty(); });
  if (good == rows.end()) throw UserError("--plot: no point has a result");
  const std::string y = options.y.value_or(figure_metric(good->result["metrics"]));
  require_metric(rows, y);
  const std::vector<std::string> values = values_of(rows, x);
  ordered_json numbers = ordered_json::array(), series = ordered_json::array();
  for (const std::string& value : values) numbers.push_back(scenario::number_of(value).value_or(NAN));
  const bool numeric = std::ranges::none_of(values, [](const std::string& v) { return !scenario::number_of(v); });
  std::vector<std::size_t> varied;  // the axes that tell lines apart
  for (std::size_t a = 0; a < rows.front().axes.size(); ++a)
    if (a != x && values_of(rows, a).size() > 1) varied.push_back(a);
  std::unordered_map<std::string, std::size_t> place, line;  // by value of x, by label
  for (std::size_t i = 0; i < values.size(); ++i) place[values[i]] = i;
  for (const launch::SweepRow& row : rows) {
    std::vector<std::string> others;
    for (const std::size_t a : varied)
      others.push_back(fmt::format("{} {}", last_key(row.axes[a].first), text_of(row.axes[a].second)));
    const std::string label = join(others);
    const auto [at, is_new] = line.try_emplace(label, series.size());
    if (is_new && series.size() == kMostLines)
      throw UserError(
          fmt::format("--plot: more than {} lines; choose --x, or fewer values of the other axes", kMostLines));
    if (is_new) series.push_back({{"label", label}, {"y", std::vector<ordered_json>(values.size(), nullptr)}});
    if (row.error.empty() && row.result["metrics"].contains(y))
      series[at->second]["y"][place.at(text_of(row.axes[x].second))] = row.result["metrics"][y];
  }
  return {{"x", {{"name", last_key(rows.front().axes[x].first)}, {"unit", numeric ? base_unit(values.front()) : ""}}},
          {"y", {{"name", y}, {"unit", unit_of_metric(y)}}},
          {"values", values},
          {"numbers", numeric ? numbers : ordered_json(nullptr)},
          {"series", series}};
}

void draw_figure(const ordered_json& data, const std::filesystem::path& file) {
  const std::string kind = file.extension();
  if (kind != ".png" && kind != ".svg" && kind != ".pdf")
    throw UserError(fmt::format("--plot {}: the name has to end with .png, .svg or .pdf", file.string()));
  std::string name = (std::filesystem::temp_directory_path() / "csdsim-figure-XXXXXX").string();
  // A new folder that only this user can write to: what is in it is run.
  if (mkdtemp(name.data()) == nullptr)
    throw UserError(fmt::format("--plot: {}: {}", name, std::generic_category().message(errno)));
  const std::filesystem::path folder = name;
  report::write_file(folder / "data.json", data.dump());
  report::write_file(folder / "figure.py", std::string(report::page_file("figure.py")));
  int status = 3;
  // The first Python that has matplotlib; Debian's is not always the first in the path.
  for (const char* const python : {"python3", "/usr/bin/python3"}) {
    status = run_program(python, {folder / "figure.py", folder / "data.json", file});
    if (status == 0) break;
    if (status != 3 && status != 127) break;
  }
  std::filesystem::remove_all(folder);
  if (status == 3 || status == 127)
    throw UserError("--plot: needs Python 3 with matplotlib (Debian: apt-get install python3-matplotlib)");
  if (status != 0) throw UserError(fmt::format("--plot {}: cannot be drawn or written", file.string()));
}

}  // namespace csdsim::app
