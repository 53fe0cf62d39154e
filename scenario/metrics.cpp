#include "scenario/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"

namespace csdsim::scenario {
namespace {

bool is_of(const DescribedMetric& metric, std::string_view run) {
  return run.empty() || std::ranges::find(metric.runs, run) != metric.runs.end();
}

}  // namespace

void describe_metrics(DescribedMetrics& all, const std::string& run, const std::vector<MetricInfo>& metrics) {
  for (const MetricInfo& info : metrics) {
    const auto known = std::ranges::find(all, info, &DescribedMetric::info);
    if (known == all.end())
      all.push_back({info, {run}});
    else if (!is_of(*known, run))
      known->runs.push_back(run);
  }
}

DescribedMetrics described_metrics(const Registries& registries) {
  DescribedMetrics all;
  for (const auto& kind : registries.experiments.items())
    describe_metrics(all, kind.name, kind.value()->metrics(registries));
  return all;
}

std::vector<std::string> metric_names(const DescribedMetrics& metrics, std::string_view run) {
  std::vector<std::string> names;
  for (const DescribedMetric& metric : metrics)
    if (is_of(metric, run)) names.push_back(metric.info.name);
  return names;
}

std::string metrics_text(std::string_view name, const DescribedMetrics& metrics) {
  std::string text;
  std::string_view meaning;
  for (const auto& [info, runs] : metrics) {
    if (!info.meaning.empty()) meaning = info.meaning;
    if (name.empty() ? info.meaning.empty() : info.name != name) continue;
    text += fmt::format("{} [{}]: {}\n  runs: {}\n", info.name, info.unit, meaning, join(runs, " "));
    if (!info.formula.empty()) text += fmt::format("  formula: {}\n", info.formula);
  }
  if (text.empty())
    throw UserError(fmt::format("unknown metric '{}'{}", printable(name), did_you_mean(name, metric_names(metrics))));
  return text;
}

nlohmann::ordered_json metrics_json(std::string_view name, const DescribedMetrics& metrics) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  std::string meaning;
  for (const auto& [info, runs] : metrics) {
    if (!info.meaning.empty()) meaning = info.meaning;
    if (!name.empty() && info.name != name) continue;
    rows.push_back(
        {{"name", info.name}, {"unit", info.unit}, {"meaning", meaning}, {"formula", info.formula}, {"runs", runs}});
  }
  if (rows.empty())
    throw UserError(fmt::format("unknown metric '{}'{}", printable(name), did_you_mean(name, metric_names(metrics))));
  return rows;
}

std::string metrics_markdown(const DescribedMetrics& metrics) {
  std::vector<std::vector<std::string>> sets;
  for (const DescribedMetric& metric : metrics)
    if (std::ranges::find(sets, metric.runs) == sets.end()) sets.push_back(metric.runs);
  std::string text =
      "# Metrics\n\nEvery metric of `result.json` and of the tables of a sweep, as `csdsim describe metrics [NAME]` "
      "prints it. Where other figures of the result give a metric, the formula does; names with dots are paths in "
      "`result.json`. Formulas are for sequences of equal lengths that start together; a test evaluates them on runs. "
      "The unit 1 is that of shares and counts. `_ns` is in nanoseconds; tables for people have a prefix instead "
      "(40.7 T, 12.3 ms).\n\n"
      "For example, a batch of 3 sequences with 8 output tokens each, `ttft_s` 0.2 s and 0.7 s of decode steps: "
      "`tokens_per_s` is 3 * 8 / (0.2 + 0.7) = 26.7, `decode_tokens_per_s` 3 * 7 / 0.7 = 30, `tpot_s` 0.7 / 7 = 0.1 "
      "s.\n";
  for (const std::vector<std::string>& set : sets) {
    text +=
        fmt::format("\n## {}\n\n| metric | unit | meaning | formula |\n|---|---|---|---|\n",
                    set == std::vector<std::string>{"eval"} ? "`csdsim eval`"
                                                            : fmt::format("Runs of workload `{}`", join(set, "`, `")));
    for (const auto& [info, runs] : metrics)
      if (runs == set && !info.meaning.empty())
        text += fmt::format("| `{}` | {} | {} | {} |\n", info.name, info.unit, info.meaning,
                            info.formula.empty() ? "" : fmt::format("`{}`", info.formula));
  }
  return text;
}

}  // namespace csdsim::scenario
