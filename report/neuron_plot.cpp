#include "report/neuron_plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "report/line_plot.h"

namespace csdsim::report {

std::string neuron_svg(const nlohmann::ordered_json& document) {
  constexpr double kLeastPercent = 0.01;
  std::map<std::uint32_t, std::vector<SvgPoint>> by_rank;
  for (const nlohmann::ordered_json& row : document.at("rows")) {
    if (row.at("threshold").is_null()) continue;
    const double above = 100 * row.at("vs_dense").get<double>();
    by_rank[row.at("rank").get<std::uint32_t>()].push_back(
        {row.at("threshold").get<double>(), std::max(above, kLeastPercent)});
  }
  LinePlot plot{.title = "What predicted neurons cost",
                .x_title = "threshold of the predictor",
                .y_title = "perplexity above the dense block, %",
                .y_log = true,
                .x_decades = false,
                .lines = {}};
  for (auto& [rank, points] : by_rank) {
    std::ranges::sort(points, {}, &SvgPoint::x);
    plot.lines.push_back({fmt::format("rank {}", rank), std::move(points)});
  }
  return line_plot_svg(plot);
}

}  // namespace csdsim::report
