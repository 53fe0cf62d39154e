#include <functional>

#include "experiment/mapping_policies/policy_tables.h"

namespace csdsim::experiment {

std::vector<report::Chart> policy_charts(const std::vector<PolicyRow>& rows) {
  using Value = std::function<double(const PolicyFigures&)>;
  const std::pair<const char*, Value> figures[] = {
      {"sparse attend, us", [](const PolicyFigures& f) { return f.sparse_latency.seconds() * 1e6; }},
      {"dense attend, us", [](const PolicyFigures& f) { return f.dense_latency.seconds() * 1e6; }},
      {"busiest channel / mean, sparse", [](const PolicyFigures& f) { return f.sparse_imbalance; }},
      {"busiest channel / mean, dense", [](const PolicyFigures& f) { return f.dense_imbalance; }},
      {"write amplification", [](const PolicyFigures& f) { return f.write_amplification; }},
      {"erases per block", [](const PolicyFigures& f) { return f.erases_mean; }},
      {"pages for 16 scattered tokens / least", [](const PolicyFigures& f) { return f.scattered_amplification; }}};
  std::vector<report::Chart> charts;
  for (const auto& [title, value] : figures) {
    report::Chart& chart = charts.emplace_back(report::Chart{.title = title});
    for (const PolicyRow& row : rows) {
      chart.names.push_back(row.policy);
      chart.values.push_back(value(row.figures));
    }
  }
  return charts;
}

}  // namespace csdsim::experiment
