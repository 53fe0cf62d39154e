#include "report/neuron_plot.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

namespace csdsim::report {

Chart neuron_chart(const nlohmann::ordered_json& document) {
  constexpr double kLeastPercent = 0.01;
  std::map<std::vector<std::uint32_t>, std::vector<ChartPoint>> by_rank;
  for (const nlohmann::ordered_json& row : document.at("rows")) {
    if (row.at("threshold").is_null()) continue;
    const double above = 100 * row.at("vs_dense").get<double>();
    const nlohmann::ordered_json& rank = row.at("rank");
    const auto ranks =
        rank.is_array() ? rank.get<std::vector<std::uint32_t>>() : std::vector{rank.get<std::uint32_t>()};
    by_rank[ranks].push_back({row.at("threshold").get<double>(), std::max(above, kLeastPercent)});
  }
  Chart chart{.title = "What predicted neurons cost",
              .x_title = "threshold of the predictor",
              .y_title = "perplexity above the dense block, %",
              .y_log = true};
  for (auto& [rank, points] : by_rank) {
    std::ranges::sort(points, {}, &ChartPoint::x);
    chart.lines.push_back({.name = fmt::format("rank {}", fmt::join(rank, ":")), .points = std::move(points)});
  }
  return chart;
}

}  // namespace csdsim::report
