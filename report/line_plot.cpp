#include "report/line_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <set>

namespace csdsim::report {
namespace {

constexpr double kPlotWidth = 460, kPlotHeight = 300, kPlotLeft = 70, kPlotTop = 60, kPlotBottom = 60,
                 kPlotLegend = 210;

/// 1, 2 or 5 times a power of ten, so that about five of it reach `most`.
double tick_step(double most) {
  const double decade = std::pow(10, std::floor(std::log10(most / 5)));
  for (const double digit : {1, 2, 5})
    if (decade * digit * 5 >= most) return decade * digit;
  return decade * 10;
}

struct PlotAxis {
  std::vector<double> ticks;  ///< rising; the first is the lower end of the axis and the last its upper end
  bool log = false;

  /// 0 at the lower end, 1 at the upper one.
  double share(double value) const {
    const double low = ticks.front(), high = ticks.back();
    return log ? std::log(value / low) / std::log(high / low) : (value - low) / (high - low);
  }
};

PlotAxis linear_axis(const std::vector<double>& values) {
  const double most = values.empty() ? 0 : *std::max_element(values.begin(), values.end());
  const double step = most > 0 ? tick_step(most) : 1;
  const int steps = std::max(1, static_cast<int>(std::ceil(most / step - 1e-9)));
  PlotAxis axis;
  for (int i = 0; i <= steps; ++i) axis.ticks.push_back(i * step);
  return axis;
}

/// From the tick at or below the smallest value to the one at or above the largest.
PlotAxis log_axis(const std::vector<double>& values) {
  PlotAxis axis{.ticks = {1, 10}, .log = true};
  if (values.empty()) return axis;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  axis.ticks.clear();
  for (int exponent = static_cast<int>(std::floor(std::log10(*least)));; ++exponent)
    for (const double digit : {1, 2, 5}) {
      const double tick = digit * std::pow(10, exponent);
      // A later tick that is still at or below the smallest value takes the place of the first.
      if (tick <= *least * (1 + 1e-9)) axis.ticks.clear();
      axis.ticks.push_back(tick);
      if (axis.ticks.size() > 1 && tick >= *most * (1 - 1e-9)) return axis;
    }
}

/// A tick at every position.
PlotAxis point_axis(const std::vector<double>& positions) {
  const std::set<double> ticks(positions.begin(), positions.end());
  return {.ticks = {ticks.begin(), ticks.end()}, .log = true};
}

/// Values below 1 that are the inverse of a whole number are written as a fraction.
std::string x_label(double x) {
  const double inverse = 1 / x;
  if (x < 1 && std::abs(inverse - std::round(inverse)) < 1e-9) return fmt::format("1/{:.0f}", inverse);
  return fmt::format("{:g}", x);
}

}  // namespace

std::string line_plot_svg(const LinePlot& plot) {
  std::vector<double> positions, values;
  for (const PlotLine& line : plot.lines)
    for (const SvgPoint& point : line.points) {
      if (plot.y_log && point.y <= 0) continue;
      positions.push_back(point.x);
      values.push_back(point.y);
    }
  const PlotAxis y_axis = plot.y_log ? log_axis(values) : linear_axis(values);
  const PlotAxis x_axis = plot.x_decades ? log_axis(positions) : point_axis(positions);
  const auto px = [&](double x) { return kPlotLeft + (x_axis.ticks.size() > 1 ? x_axis.share(x) : 0.5) * kPlotWidth; };
  const double bottom = kPlotTop + kPlotHeight;
  const auto py = [&](double y) { return bottom - y_axis.share(y) * kPlotHeight; };

  Svg svg(kPlotLeft + kPlotWidth + kPlotLegend, bottom + kPlotBottom);
  svg.text({kPlotLeft, 20}, plot.title, SvgAnchor::start, true);
  svg.text({kPlotLeft, kPlotTop - 12}, plot.y_title);
  svg.text({kPlotLeft + kPlotWidth / 2, bottom + 40}, plot.x_title, SvgAnchor::middle);
  for (const double x : x_axis.ticks) {
    svg.line({px(x), kPlotTop}, {px(x), bottom}, kGridLine);
    svg.text({px(x), bottom + 18}, x_label(x), SvgAnchor::middle);
  }
  for (const double y : y_axis.ticks) {
    svg.line({kPlotLeft, py(y)}, {kPlotLeft + kPlotWidth, py(y)}, kGridLine);
    svg.text({kPlotLeft - 6, py(y) + 4}, fmt::format("{:g}", y), SvgAnchor::end);
  }
  svg.frame({kPlotLeft, kPlotTop}, kPlotWidth, kPlotHeight, {.colour = "#888"});
  for (std::size_t i = 0; i < plot.lines.size(); ++i) {
    const std::string_view colour = kLineColours[i % std::size(kLineColours)];
    std::vector<SvgPoint> path;
    for (const SvgPoint& point : plot.lines[i].points)
      if (!plot.y_log || point.y > 0) path.push_back({px(point.x), py(point.y)});
    if (path.size() > 1) svg.polyline(path, {.colour = colour, .width = 1.5});
    for (const SvgPoint& point : path) svg.circle(point, 3, colour);
    const double y = kPlotTop + 10 + 20 * static_cast<double>(i);
    svg.line({kPlotLeft + kPlotWidth + 15, y}, {kPlotLeft + kPlotWidth + 35, y}, {.colour = colour, .width = 2});
    svg.text({kPlotLeft + kPlotWidth + 41, y + 4}, plot.lines[i].name);
  }
  return svg.document();
}

}  // namespace csdsim::report
