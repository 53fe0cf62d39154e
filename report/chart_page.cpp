#include "report/chart_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "report/page_files.h"
#include "report/page_parts.h"

namespace csdsim::report {
namespace {

using nlohmann::ordered_json;

ordered_json json_of(const Chart& chart) {
  ordered_json lines = ordered_json::array();
  for (const ChartLine& line : chart.lines) {
    ordered_json points = ordered_json::array();
    for (const ChartPoint& point : line.points)
      if ((!chart.x_log || point.x > 0) && (!chart.y_log || point.y > 0)) points.push_back({point.x, point.y});
    lines.push_back({{"name", line.name}, {"dashed", line.dashed}, {"points", std::move(points)}});
  }
  return {{"title", chart.title}, {"x", chart.x_title},        {"y", chart.y_title},   {"x_log", chart.x_log},
          {"y_log", chart.y_log}, {"lines", std::move(lines)}, {"names", chart.names}, {"values", chart.values}};
}

}  // namespace

std::string chart_page(std::string_view title, const std::vector<Chart>& charts) {
  ordered_json all = ordered_json::array();
  for (const Chart& chart : charts) all.push_back(json_of(chart));
  return filled_page(
      "charts.html", title, all,
      fmt::format("{}\n{}\n{}", page_file("helpers.js"), page_file("chart_page.js"), page_file("charts_main.js")));
}

}  // namespace csdsim::report
