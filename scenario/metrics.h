// The metrics of all kinds of runs, as commands and docs/metrics.md show them. Experiments and features state their
// own.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/metric.h"
#include "scenario/registries.h"

namespace csdsim::scenario {

/// A metric and the runs that have it.
struct DescribedMetric {
  MetricInfo info;
  std::vector<std::string> runs;  ///< kinds of workloads; "eval": csdsim eval
};
using DescribedMetrics = std::vector<DescribedMetric>;

/// The metrics of all kinds of workloads. Workloads that state the same metric share it.
DescribedMetrics described_metrics(const Registries& registries);
void describe_metrics(DescribedMetrics& all, const std::string& run, const std::vector<MetricInfo>& metrics);

/// The names of the metrics of all runs, or of a kind of runs; of that empty if it states none.
std::vector<std::string> metric_names(const DescribedMetrics& metrics, std::string_view run = {});

/// Unit, meaning and formula of a metric; of all for "". UserError for an unknown one.
std::string metrics_text(std::string_view name, const DescribedMetrics& metrics);

/// The same as a list of {name, unit, meaning, formula, runs}.
nlohmann::ordered_json metrics_json(std::string_view name, const DescribedMetrics& metrics);

/// All metrics as Markdown tables, one for each set of runs.
std::string metrics_markdown(const DescribedMetrics& metrics);

}  // namespace csdsim::scenario
