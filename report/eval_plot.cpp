#include "report/eval_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace csdsim::report {
namespace {

using nlohmann::ordered_json;

/// "dense, 4-bit K and V"; methods with K and V of 16 bits by their name.
std::string line_name(const ordered_json& row) {
  const std::string method = row["method"];
  const int bits = row.value("kv_bits", 16);
  return bits == 16 ? method : fmt::format("{}, {}-bit K and V", method, bits);
}

bool has(const ordered_json& row, const char* key) { return row.contains(key) && !row[key].is_null(); }

/// One line per method but dense attention, also for those without points, so that all charts have the same.
std::vector<ChartLine> lines_of(const ordered_json& rows, const char* x, const char* y) {
  std::vector<ChartLine> lines;
  for (const ordered_json& row : rows) {
    const std::string method = line_name(row);
    if (method == "dense") continue;
    auto line = std::ranges::find(lines, method, &ChartLine::name);
    if (line == lines.end()) line = lines.insert(lines.end(), ChartLine{.name = method});
    if (has(row, x) && has(row, y)) line->points.push_back({row[x].get<double>(), row[y].get<double>()});
  }
  for (ChartLine& line : lines) std::ranges::sort(line.points, {}, &ChartPoint::x);
  return lines;
}

/// Adds a chart whose dashed line is the level of dense attention.
void add_chart(std::vector<Chart>& charts, Chart chart, std::optional<double> dense) {
  double least = 1;
  for (const ChartLine& line : chart.lines)
    for (const ChartPoint& point : line.points) least = std::min(least, point.x);
  if (dense) chart.lines.push_back({.name = "dense", .points = {{least, *dense}, {1, *dense}}, .dashed = true});
  charts.push_back(std::move(chart));
}

}  // namespace

std::vector<Chart> eval_charts(const ordered_json& document) {
  const ordered_json& rows = document.at("rows");
  std::optional<double> dense_recall;
  for (const ordered_json& row : rows)
    if (line_name(row) == "dense" && has(row, "recall_mean")) dense_recall = row["recall_mean"].get<double>();
  const auto some = [&](const char* key) {
    return std::ranges::any_of(rows, [&](const auto& r) { return has(r, key); });
  };
  std::vector<Chart> charts;
  struct Axis {
    const char* metric;
    const char* title;
  };
  for (const Axis& x : {Axis{"kept_mean", "tokens attended to / tokens in the cache"},
                        Axis{"traffic_mean", "bytes read / bytes of dense attention with 16 bits"}}) {
    const auto chart = [&](const char* title, const char* y, bool y_log) {
      return Chart{
          .title = title, .x_title = x.title, .x_log = true, .y_log = y_log, .lines = lines_of(rows, x.metric, y)};
    };
    add_chart(charts, chart("perplexity", "perplexity", true), document.at("metrics").at("dense_perplexity"));
    if (some("recall_mean")) add_chart(charts, chart("recall of planted facts", "recall_mean", false), dense_recall);
    if (some("top_k_recall"))
      add_chart(charts, chart("tokens chosen as by fp16 scores", "top_k_recall", false), std::nullopt);
  }
  return charts;
}

}  // namespace csdsim::report
