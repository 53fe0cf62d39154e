#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "experiment/mapping_policies/policy_tables.h"
#include "report/svg.h"

namespace csdsim::experiment {

namespace {

constexpr double kPanel = 250, kBar = 16, kLabel = 130, kTop = 46, kGap = 46;

using report::Svg;
using report::SvgAnchor;
using Value = std::function<double(const PolicyFigures&)>;

/// Adds horizontal bars that begin at 0, with values beside them.
void add_panel(Svg& svg, double left, double top, const std::string& title, const std::vector<PolicyRow>& rows,
               const Value& value) {
  double most = 0;
  for (const PolicyRow& row : rows) most = std::max(most, value(row.figures));
  const double begin = left + kLabel;
  svg.text({begin, top - 8}, title, SvgAnchor::start, true);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const double y = top + static_cast<double>(i) * (kBar + 6), v = value(rows[i].figures);
    const double length = most > 0 ? v / most * kPanel : 0;
    svg.text({begin - 6, y + kBar - 4}, rows[i].policy, SvgAnchor::end);
    svg.bar({begin, y}, length, kBar, i == 0 ? "#1f77b4" : "#9ab8d3");
    svg.text({begin + length + 5, y + kBar - 4}, fmt::format("{:.4g}", v));
  }
}

}  // namespace

std::string policy_svg(const std::vector<PolicyRow>& rows) {
  const double height = static_cast<double>(rows.size()) * (kBar + 6), width = kLabel + kPanel + 60;
  Svg svg(2 * width + 20, kTop + 3 * (height + kGap));
  const std::pair<const char*, Value> panels[] = {
      {"sparse attend, us", [](const PolicyFigures& f) { return f.sparse_latency.seconds() * 1e6; }},
      {"dense attend, us", [](const PolicyFigures& f) { return f.dense_latency.seconds() * 1e6; }},
      {"busiest channel / mean, sparse", [](const PolicyFigures& f) { return f.sparse_imbalance; }},
      {"busiest channel / mean, dense", [](const PolicyFigures& f) { return f.dense_imbalance; }},
      {"write amplification", [](const PolicyFigures& f) { return f.write_amplification; }},
      {"pages for 16 scattered tokens / least", [](const PolicyFigures& f) { return f.scattered_amplification; }}};
  for (std::size_t i = 0; i < std::size(panels); ++i) {
    add_panel(svg, 10 + static_cast<double>(i % 2) * width, kTop + static_cast<double>(i / 2) * (height + kGap),
              panels[i].first, rows, panels[i].second);
  }
  return svg.document();
}

}  // namespace csdsim::experiment
