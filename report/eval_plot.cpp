#include "report/eval_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <vector>

#include "report/svg.h"

namespace csdsim::report {
namespace {

using nlohmann::ordered_json;

/// One line per method, so that all panels have the same colours: its name and its points in axis values, x ascending.
using Lines = std::vector<std::pair<std::string, std::vector<SvgPoint>>>;

constexpr double kWidth = 380, kHeight = 270, kLeft = 60, kTop = 40, kGap = 75, kLegend = 150;
constexpr SvgStroke kDense{.colour = "#444", .dashed = true};

/// "dense, 4-bit K and V"; methods with K and V of 16 bits by their name.
std::string line_name(const ordered_json& row) {
  const std::string method = row["method"];
  const int bits = row.value("kv_bits", 16);
  return bits == 16 ? method : fmt::format("{}, {}-bit K and V", method, bits);
}

Lines lines_of(const ordered_json& rows, const char* x, const char* y) {
  Lines lines;
  for (const ordered_json& row : rows) {
    const std::string method = line_name(row);
    if (method == "dense") continue;
    auto line = std::find_if(lines.begin(), lines.end(), [&](const auto& l) { return l.first == method; });
    if (line == lines.end()) line = lines.insert(lines.end(), {method, {}});
    if (!row.contains(x) || !row.contains(y) || row[x].is_null() || row[y].is_null()) continue;
    line->second.push_back({row[x].get<double>(), row[y].get<double>()});
  }
  for (auto& [method, points] : lines) {
    std::sort(points.begin(), points.end(), [](const SvgPoint& a, const SvgPoint& b) { return a.x < b.x; });
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

struct Panel {
  double left = 0, top = 0;
  std::string title, x_title;
  Axis x, y;
  std::vector<double> y_ticks;
  std::optional<double> dense;  ///< y value of dense attention
};

/// Adds one panel with its frame, ticks, lines and the level of dense attention.
void add_panel(Svg& svg, const Panel& panel, const Lines& lines) {
  const double left = panel.left, top = panel.top, right = left + kWidth, bottom = top + kHeight;
  const auto px = [&](double v) { return left + panel.x.at(v) * kWidth; };
  const auto py = [&](double v) { return bottom - panel.y.at(v) * kHeight; };
  svg.frame({left, top}, kWidth, kHeight, {.colour = "#888"});
  svg.text({left + kWidth / 2, top - 10}, panel.title, SvgAnchor::middle, true);
  svg.text({left + kWidth / 2, bottom + 36}, panel.x_title, SvgAnchor::middle);
  for (double share = 1; share >= panel.x.least * 0.999; share /= 2) {
    svg.line({px(share), top}, {px(share), bottom}, kGridLine);
    svg.text({px(share), bottom + 18}, share_label(share), SvgAnchor::middle);
  }
  for (const double tick : panel.y_ticks) {
    svg.line({left, py(tick)}, {right, py(tick)}, kGridLine);
    svg.text({left - 6, py(tick) + 4}, fmt::format("{:g}", tick), SvgAnchor::end);
  }
  if (panel.dense) svg.line({left, py(*panel.dense)}, {right, py(*panel.dense)}, kDense);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string_view colour = kLineColours[i % std::size(kLineColours)];
    std::vector<SvgPoint> path;
    for (const SvgPoint& p : lines[i].second) {
      path.push_back({px(p.x), py(p.y)});
      svg.circle(path.back(), 2.5, colour);
    }
    if (!path.empty()) svg.polyline(path, {.colour = colour, .width = 1.5});
  }
}

/// Adds the legend, dense attention last.
void add_legend(Svg& svg, double left, const Lines& lines) {
  for (std::size_t i = 0; i <= lines.size(); ++i) {
    const double y = kTop + 10 + 20 * static_cast<double>(i);
    const bool dense = i == lines.size();
    svg.line({left, y}, {left + 20, y},
             dense ? kDense : SvgStroke{.colour = kLineColours[i % std::size(kLineColours)], .width = 2});
    svg.text({left + 26, y + 4}, dense ? "dense" : lines[i].first);
  }
}

Axis x_axis(const Lines& lines) {
  Axis axis{.least = 1, .most = 1};
  for (const auto& [method, points] : lines) {
    for (const SvgPoint& p : points) axis.least = std::min(axis.least, p.x);
  }
  axis.least = std::exp2(std::floor(std::log2(axis.least)));
  return axis;
}

/// Returns an axis that contains the values with a margin of 2 %. Adds ticks at 1, 2, 5 and 8 times powers of ten, or
/// at every digit when the axis is narrow.
Axis perplexity_axis(const Lines& lines, double dense, std::vector<double>& ticks) {
  Axis axis{.least = dense * 0.98, .most = dense * 1.02};
  for (const auto& [method, points] : lines) {
    for (const SvgPoint& p : points) {
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
    if (recall && line_name(row) == "dense" && !row["recall_mean"].is_null())
      dense_recall = row["recall_mean"].get<double>();
  }
  const std::pair<const char*, const char*> shares[] = {
      {"kept_mean", "tokens attended to / tokens in the cache"},
      {"traffic_mean", "bytes read / bytes of dense attention with 16 bits"}};
  const bool scores = std::any_of(rows.begin(), rows.end(), [](const ordered_json& row) {
    return row.contains("top_k_recall") && !row["top_k_recall"].is_null();
  });
  const double width = kLeft + (kWidth + kGap) * (1 + (recall ? 1 : 0) + (scores ? 1 : 0)) + kLegend;
  const double height = kTop + 2 * (kHeight + kGap);
  Svg svg(width, height);
  Lines legend;
  for (std::size_t i = 0; i < 2; ++i) {
    const double top = kTop + static_cast<double>(i) * (kHeight + kGap);
    const Lines perplexity = lines_of(rows, shares[i].first, "perplexity");
    const Axis x = x_axis(perplexity);
    std::vector<double> ticks;
    const Axis y = perplexity_axis(perplexity, dense, ticks);
    add_panel(svg, {kLeft, top, "perplexity", shares[i].second, x, y, ticks, dense}, perplexity);
    double left = kLeft;
    const auto add_shares = [&](const char* title, const char* key, std::optional<double> level) {
      left += kWidth + kGap;
      const Axis share{.least = 0, .most = 1, .logarithmic = false};
      add_panel(svg, {left, top, title, shares[i].second, x, share, {0, 0.2, 0.4, 0.6, 0.8, 1}, level},
                lines_of(rows, shares[i].first, key));
    };
    if (recall) add_shares("recall of planted facts", "recall_mean", dense_recall);
    if (scores) add_shares("tokens chosen as by fp16 scores", "top_k_recall", std::nullopt);
    legend = perplexity;
  }
  add_legend(svg, width - kLegend, legend);
  return svg.document();
}

}  // namespace csdsim::report
