#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

#include "app/commands.h"
#include "app/figure.h"
#include "app/standard_output.h"
#include "base/error.h"
#include "base/quantity.h"
#include "experiment/calibration/calibration.h"
#include "experiment/experiments.h"
#include "launch/in_processes.h"
#include "report/files.h"
#include "report/table.h"
#include "report/text.h"

namespace csdsim::app {
namespace {

using experiment::DriveParameter;
using experiment::FioFigures;
using experiment::FioPoint;
using experiment::Fit;
using experiment::MeasuredDrive;
using nlohmann::ordered_json;

constexpr const char* kPresetFile = "drive.yaml";
constexpr const char* kScenarioFile = "calibrated.yaml";

double percent(double simulated, double measured) { return 100 * (simulated / measured - 1); }

/// One row per point and direction.
ordered_json point_rows(const MeasuredDrive& drive, const Fit& fit) {
  ordered_json rows = ordered_json::array();
  std::size_t at = 0;
  for (const FioPoint& point : drive.points())
    for (const auto& [kind, measured] : {std::pair{"read", point.read}, {"write", point.write}}) {
      if (!measured) continue;
      const double iops = fit.figures[at], latency = fit.figures[at + 1];
      at += 2;
      rows.push_back({{"job", point.name},
                      {"pattern", name_of(point.pattern)},
                      {"of", kind},
                      {"size", format_quantity(point.request_size)},
                      {"depth", point.queue_depth},
                      {"measured_iops", measured->iops},
                      {"simulated_iops", iops},
                      {"iops_error_percent", percent(iops, measured->iops)},
                      {"measured_latency_ns", measured->latency_ns},
                      {"simulated_latency_ns", latency},
                      {"latency_error_percent", percent(latency, measured->latency_ns)},
                      {"simulated_bytes_per_s", iops * static_cast<double>(point.request_size.value)}});
    }
  return rows;
}

/// What the points say about a parameter.
std::string finding(const DriveParameter& p, double value, const experiment::FitRange& range) {
  if (range.to_low_end && range.to_high_end) return "not determined: no point reacts to it";
  if (!p.fit.choices.empty())
    return range.low == range.high ? "determined"
                                   : fmt::format("{} to {} fit as well", p.text(range.low), p.text(range.high));
  if (range.to_low_end) return fmt::format("at most {}: no point reacts below", p.text(range.high));
  if (range.to_high_end) return fmt::format("at least {}: no point reacts above", p.text(range.low));
  return fmt::format("+{:.0f} % / -{:.0f} %", percent(range.high, value), -percent(range.low, value));
}

ordered_json parameter_rows(const MeasuredDrive& drive, const Fit& fit) {
  ordered_json rows = ordered_json::array();
  for (std::size_t i = 0; i < fit.values.size(); ++i) {
    const DriveParameter& p = drive.parameters()[i];
    rows.push_back({{"parameter", p.fit.name},
                    {"searched", fmt::format("{} to {}", p.text(p.fit.low), p.text(p.fit.high))},
                    {"found", p.text(fit.values[i])},
                    {"determined", finding(p, fit.values[i], fit.ranges[i])}});
  }
  return rows;
}

/// Pairs of parameters of which the points determine a combination only.
std::vector<std::string> trade_offs(const MeasuredDrive& drive, const Fit& fit) {
  std::vector<std::string> lines;
  for (const experiment::FitTradeOff& t : fit.trade_offs)
    lines.push_back(
        fmt::format("{} and {} are not determined apart: no point shows {:+.0f} % of the first with {:+.0f} % "
                    "of the second.",
                    drive.parameters()[t.parameter].fit.name, drive.parameters()[t.other].fit.name,
                    100 * (t.factor - 1), 100 * (t.other_factor - 1)));
  return lines;
}

std::string table_of(const ordered_json& rows) {
  report::Table table({"job", "of", "size", "depth", "IOPS, fio", "simulated", "", "mean us, fio", "simulated", ""});
  for (const ordered_json& row : rows) {
    const auto number = [&](const char* key) { return row[key].get<double>(); };
    table.add_row({row["job"], row["of"], row["size"], fmt::format("{}", row["depth"].get<int>()),
                   report::short_number(number("measured_iops")), report::short_number(number("simulated_iops")),
                   fmt::format("{:+.1f} %", number("iops_error_percent")),
                   fmt::format("{:.1f}", number("measured_latency_ns") * 1e-3),
                   fmt::format("{:.1f}", number("simulated_latency_ns") * 1e-3),
                   fmt::format("{:+.1f} %", number("latency_error_percent"))});
  }
  return table.to_text();
}

/// Bandwidth over the depth, measured and simulated, for each pattern and size.
ordered_json fit_figure(const ordered_json& rows) {
  std::set<std::uint32_t> depths;
  for (const ordered_json& row : rows) depths.insert(row["depth"].get<std::uint32_t>());
  std::vector<std::string> values;
  for (const std::uint32_t depth : depths) values.push_back(fmt::format("{}", depth));
  const std::vector<ordered_json> none(values.size(), nullptr);
  ordered_json series = ordered_json::array();
  for (const ordered_json& row : rows) {
    std::string pattern = row["pattern"], size = row["size"];
    std::ranges::replace(pattern, '_', ' ');
    std::string label = fmt::format("{}, {}", pattern, size);
    if (pattern.ends_with("mixed")) label += fmt::format(", {}s", row["of"].get<std::string>());
    auto line = std::ranges::find_if(series, [&](const ordered_json& one) { return one["label"] == label; });
    if (line == series.end()) {
      series.push_back({{"label", label}, {"y", none}, {"measured", none}});
      line = series.end() - 1;
    }
    const auto at = static_cast<std::size_t>(std::distance(depths.begin(), depths.find(row["depth"])));
    const double bytes = row["simulated_bytes_per_s"];
    (*line)["y"][at] = bytes;
    (*line)["measured"][at] = bytes * row["measured_iops"].get<double>() / row["simulated_iops"].get<double>();
  }
  return {{"x", {{"name", "requests in flight"}, {"unit", ""}}},
          {"y", {{"name", "bandwidth"}, {"unit", "B/s"}, {"log", true}}},
          {"values", values},
          {"numbers", std::vector<double>(depths.begin(), depths.end())},
          {"series", series}};
}

std::vector<FioPoint> measured_points(const std::vector<std::filesystem::path>& files, bool quiet) {
  std::vector<FioPoint> points;
  for (const std::filesystem::path& file : files) {
    const experiment::FioReport report = experiment::read_fio(file);
    if (!quiet)
      for (const std::string& note : report.notes) print_message(fmt::format("{}\n", note));
    points.insert(points.end(), report.points.begin(), report.points.end());
  }
  return points;
}

std::string file_names(const std::vector<std::filesystem::path>& files) {
  std::string names;
  for (const std::filesystem::path& file : files) names += (names.empty() ? "" : ", ") + file.filename().string();
  return names;
}

}  // namespace

int calibrate(const CalibrateArguments& arguments) {
  const scenario::Loaded loaded = experiment::load_scenario(arguments.scenario, arguments.overrides);
  const scenario::Scenario& s = loaded.base.scenario;
  std::vector<FioPoint> points = measured_points(arguments.fio, arguments.quiet);
  std::vector<DriveParameter> parameters = experiment::parameters_to_find(s, points, arguments.fit, arguments.fix);
  const MeasuredDrive drive(s, std::move(points), std::move(parameters), arguments.requests);
  const std::string name = fmt::format("{}-calibrated", s.name);
  const std::filesystem::path out = arguments.out.value_or(std::filesystem::path("out") / name);
  report::make_directory(out);

  Fit fit;
  {
    report::Progress progress(s.name, arguments.quiet);
    std::vector<experiment::FitParameter> of_fit;
    std::size_t free = 0, combinations = 1;
    for (const DriveParameter& p : drive.parameters()) {
      of_fit.push_back(p.fit);
      free += p.fit.choices.empty() ? 1 : 0;
      combinations *= std::max<std::size_t>(1, p.fit.choices.size());
    }
    if (combinations > 64)
      throw UserError(fmt::format("--fit: {} combinations of listed values; at most 64 are tried", combinations));
    experiment::FitOptions options{.seed = arguments.seed};
    const std::size_t most = free * (8 + options.calls_per_parameter * (combinations + 1) + 16);
    options.progress = [&](std::size_t calls, double error) {
      progress.update(fmt::format("simulations of all points; error {:.1f} %", 100 * error), calls, most);
    };
    const auto run_all = [&](std::size_t count, const auto& run) {
      return launch::run_in_processes(count, arguments.jobs, run);
    };
    fit = experiment::fit_model([&](const std::vector<double>& values) { return drive.simulated(values, run_all); },
                                of_fit, drive.measured(), options);
  }

  const std::string files = file_names(arguments.fio);
  const ordered_json rows = point_rows(drive, fit), found = parameter_rows(drive, fit);
  const std::vector<std::string> pairs = trade_offs(drive, fit);
  const ordered_json document{
      {"scenario", s.name},       {"fio", files},   {"seed", arguments.seed}, {"error", fit.error},
      {"simulations", fit.calls}, {"points", rows}, {"parameters", found},    {"not_determined_apart", pairs}};
  report::write_file(out / "calibration.json", document.dump(2) + "\n");
  report::write_file(out / kPresetFile, experiment::preset_of(drive, fit, loaded.base, name, files));
  report::write_file(out / kScenarioFile, experiment::scenario_of(drive, fit, name, kPresetFile));
  if (arguments.plot) draw_figure(fit_figure(rows), *arguments.plot);
  if (arguments.format == Format::json) {
    print_result(document.dump(2) + "\n");
    return 0;
  }
  std::string text = table_of(rows) + "\n" + report::rows_text(found) + "\n";
  for (const std::string& line : pairs) text += line + "\n";
  text += fmt::format(
      "The simulated figures are within {:.1f} % of the measured ones (root mean square, {} simulations).\n"
      "Preset: {}; the points on it: csdsim sweep {}\n",
      100 * fit.error, fit.calls, (out / kPresetFile).string(), (out / kScenarioFile).string());
  print_result(text);
  return 0;
}

}  // namespace csdsim::app
