#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "experiment/mapping_policies/policy_tables.h"

namespace csdsim::experiment {

namespace {

constexpr double kPanel = 250, kBar = 16, kLabel = 130, kTop = 46, kGap = 46;

/// Horizontal bars from 0 on, the value beside each.
std::string panel(double left, double top, const std::string& title, const std::vector<PolicyRow>& rows,
                  const std::function<double(const PolicyFigures&)>& value) {
  double most = 0;
  for (const PolicyRow& row : rows) most = std::max(most, value(row.figures));
  std::string svg =
      fmt::format("<text x='{:.1f}' y='{:.1f}' font-weight='bold'>{}</text>\n", left + kLabel, top - 8, title);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = top + static_cast<double>(i) * (kBar + 6), v = value(rows[i].figures);
    svg += fmt::format(
        "<text x='{:.1f}' y='{:.1f}' text-anchor='end'>{}</text>"
        "<rect x='{:.1f}' y='{:.1f}' width='{:.1f}' height='{:.1f}' fill='{}'/>"
        "<text x='{:.1f}' y='{:.1f}'>{:.4g}</text>\n",
        left + kLabel - 6, y + kBar - 4, rows[i].policy, left + kLabel, y, most > 0 ? v / most * kPanel : 0.0, kBar,
        i == 0 ? "#1f77b4" : "#9ab8d3", left + kLabel + (most > 0 ? v / most * kPanel : 0) + 5, y + kBar - 4, v);
  }
  return svg;
}

}  // namespace

std::string policy_svg(const std::vector<PolicyRow>& rows) {
  const double height = static_cast<double>(rows.size()) * (kBar + 6), width = kLabel + kPanel + 60;
  std::string svg = fmt::format(
      "<svg xmlns='http://www.w3.org/2000/svg' width='{0:.0f}' height='{1:.0f}' viewBox='0 0 {0:.0f} {1:.0f}' "
      "font-family='sans-serif' font-size='12'>\n<rect width='100%' height='100%' fill='white'/>\n",
      2 * width + 20, kTop + 3 * (height + kGap));
  const std::pair<const char*, std::function<double(const PolicyFigures&)>> panels[] = {
      {"sparse attend, us", [](const PolicyFigures& f) { return f.sparse_latency.seconds() * 1e6; }},
      {"dense attend, us", [](const PolicyFigures& f) { return f.dense_latency.seconds() * 1e6; }},
      {"busiest channel / mean, sparse", [](const PolicyFigures& f) { return f.sparse_imbalance; }},
      {"busiest channel / mean, dense", [](const PolicyFigures& f) { return f.dense_imbalance; }},
      {"write amplification", [](const PolicyFigures& f) { return f.write_amplification; }},
      {"pages for 16 scattered tokens / least", [](const PolicyFigures& f) { return f.scattered_amplification; }}};
  for (std::size_t i = 0; i < std::size(panels); ++i) {
    svg += panel(10 + static_cast<double>(i % 2) * width, kTop + static_cast<double>(i / 2) * (height + kGap),
                 panels[i].first, rows, panels[i].second);
  }
  return svg + "</svg>\n";
}

}  // namespace csdsim::experiment
