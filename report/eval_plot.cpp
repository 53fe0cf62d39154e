#include "report/eval_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

namespace csdsim::report {
namespace {

using nlohmann::ordered_json;

struct Point {
  double x = 0, y = 0;
};
using Lines = std::vector<std::pair<std::string, std::vector<Point>>>;  ///< by method, x ascending

constexpr double kWidth = 380, kHeight = 270, kLeft = 60, kTop = 40, kGap = 75, kLegend = 150;
constexpr const char* kColours[] = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b",
                                    "#e377c2", "#7f7f7f", "#bcbd22", "#17becf", "#000000"};

Lines lines_of(const ordered_json& rows, const char* x, const char* y) {
  Lines lines;
  for (const ordered_json& row : rows) {
    if (row["method"] == "dense" || !row.contains(x) || !row.contains(y) || row[x].is_null() || row[y].is_null())
      continue;
    const std::string method = row["method"];
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == method; });
    if (line == lines.end()) line = lines.insert(lines.end(), {method, {}});
    line->second.push_back({row[x].get<double>(), row[y].get<double>()});
  }
  for (auto& [method, points] : lines) {
    std::sort(points.begin(), points.end(), [](const Point& a, const Point& b) { return a.x < b.x; });
  }
  return lines;
}

struct Axis {
  double least = 1, most = 0;
  bool logarithmic = true;
  double at(double value) const {
    const auto scale = [&](double v) { return logarithmic ? std::log2(v) : v; };
    return most == least ? 0.5 : (scale(value) - scale(least)) / (scale(most) - scale(least));
  }
};

std::string share_label(double share) { return share >= 1 ? "1" : fmt::format("1/{:.0f}", 1 / share); }

/// One panel with its frame, ticks, lines and the level of dense attention.
std::string panel(double left, double top, const std::string& title, const std::string& x_title, const Lines& lines,
                  const Axis& x, const Axis& y, const std::vector<double>& y_ticks, std::optional<double> dense) {
  const auto px = [&](double v) { return left + x.at(v) * kWidth; };
  const auto py = [&](double v) { return top + kHeight - y.at(v) * kHeight; };
  std::string svg = fmt::format(
      "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='none' stroke='#888'/>\n"
      "<text x='{:.1f}' y='{:.1f}' text-anchor='middle' font-weight='bold'>{}</text>\n"
      "<text x='{:.1f}' y='{:.1f}' text-anchor='middle'>{}</text>\n",
      left, top, kWidth, kHeight, left + kWidth / 2, top - 10, title, left + kWidth / 2, top + kHeight + 36, x_title);
  for (double share = 1; share >= x.least * 0.999; share /= 2) {
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{0:.1f}' y2='{2:.1f}' stroke='#ddd'/>"
        "<text x='{0:.1f}' y='{3:.1f}' text-anchor='middle'>{4}</text>\n",
        px(share), top, top + kHeight, top + kHeight + 18, share_label(share));
  }
  for (const double tick : y_ticks) {
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{2:.1f}' y2='{1:.1f}' stroke='#ddd'/>"
        "<text x='{3:.1f}' y='{4:.1f}' text-anchor='end'>{5:g}</text>\n",
        left, py(tick), left + kWidth, left - 6, py(tick) + 4, tick);
  }
  if (dense) {
    svg += fmt::format("<line x1='{:.1f}' y1='{:.1f}' x2='{:.1f}' y2='{:.1f}' stroke='#444' stroke-dasharray='5 4'/>\n",
                       left, py(*dense), left + kWidth, py(*dense));
  }
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const char* colour = kColours[i % std::size(kColours)];
    std::string path;
    for (const Point& p : lines[i].second) {
      path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "" : " ", px(p.x), py(p.y));
      svg += fmt::format("<circle cx='{:.1f}' cy='{:.1f}' r='2.5' fill='{}'/>", px(p.x), py(p.y), colour);
    }
    svg += fmt::format("<polyline points='{}' fill='none' stroke='{}' stroke-width='1.5'/>\n", path, colour);
  }
  return svg;
}

Axis x_axis(const Lines& lines) {
  Axis axis{.least = 1, .most = 1};
  for (const auto& [method, points] : lines) {
    for (const Point& p : points) axis.least = std::min(axis.least, p.x);
  }
  axis.least = std::exp2(std::floor(std::log2(axis.least)));
  return axis;
}

/// Ticks of 1, 2, 5 times powers of ten, and the axis that just holds them and the values.
Axis perplexity_axis(const Lines& lines, double dense, std::vector<double>& ticks) {
  Axis axis{.least = dense * 0.98, .most = dense * 1.02};
  for (const auto& [method, points] : lines) {
    for (const Point& p : points) {
      axis.least = std::min(axis.least, p.y * 0.98);
      axis.most = std::max(axis.most, p.y * 1.02);
    }
  }
  const bool narrow = axis.most < 2.5 * axis.least;
  for (double decade = std::pow(10, std::floor(std::log10(axis.least))); decade <= axis.most; decade *= 10) {
    for (double digit = 1; digit < 9.99; digit += narrow ? 1 : (digit < 2 ? 1 : 3)) {
      if (decade * digit >= axis.least && decade * digit <= axis.most) ticks.push_back(decade * digit);
    }
  }
  return axis;
}

}  // namespace

std::string eval_svg(const ordered_json& document) {
  const ordered_json& rows = document.at("rows");
  const double dense = document.at("metrics").at("dense_perplexity");
  const bool recall = !rows.empty() && rows[0].contains("recall_mean");
  std::optional<double> dense_recall;
  for (const ordered_json& row : rows) {
    if (recall && row["method"] == "dense" && !row["recall_mean"].is_null())
      dense_recall = row["recall_mean"].get<double>();
  }
  const std::pair<const char*, const char*> shares[] = {
      {"kept_mean", "tokens attended to / tokens in the cache"},
      {"traffic_mean", "elements read / elements of dense attention"}};
  const double width = kLeft + (kWidth + kGap) * (recall ? 2 : 1) + kLegend;
  const double height = kTop + 2 * (kHeight + kGap);
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
      width, height);
  Lines legend;
  for (std::size_t i = 0; i < 2; ++i) {
    const double top = kTop + static_cast<double>(i) * (kHeight + kGap);
    const Lines perplexity = lines_of(rows, shares[i].first, "perplexity");
    const Axis x = x_axis(perplexity);
    std::vector<double> ticks;
    const Axis y = perplexity_axis(perplexity, dense, ticks);
    svg += panel(kLeft, top, "perplexity", shares[i].second, perplexity, x, y, ticks, dense);
    if (recall) {
      const Axis share{.least = 0, .most = 1, .logarithmic = false};
      svg += panel(kLeft + kWidth + kGap, top, "recall of planted facts", shares[i].second,
                   lines_of(rows, shares[i].first, "recall_mean"), x, share, {0, 0.2, 0.4, 0.6, 0.8, 1}, dense_recall);
    }
    legend = perplexity;
  }
  const double left = width - kLegend;
  for (std::size_t i = 0; i < legend.size(); ++i) {
    const double y = kTop + 10 + 20 * static_cast<double>(i);
    svg += fmt::format(
        "<line x1='{0:.1f}' y1='{1:.1f}' x2='{2:.1f}' y2='{1:.1f}' stroke='{3}' stroke-width='2'/>"
        "<text x='{4:.1f}' y='{5:.1f}'>{6}</text>\n",
        left, y, left + 20, kColours[i % std::size(kColours)], left + 26, y + 4, legend[i].first);
  }
  const double y = kTop + 10 + 20 * static_cast<double>(legend.size());
  svg += fmt::format(
      "<line x1='{0:.1f}' y1='{1:.1f}' x2='{2:.1f}' y2='{1:.1f}' stroke='#444' stroke-dasharray='5 4'/>"
      "<text x='{3:.1f}' y='{4:.1f}'>dense</text>\n</svg>\n",
      left, y, left + 20, left + 26, y + 4);
  return svg;
}

}  // namespace csdsim::report
