// Every metric of a result: its unit, its meaning and, where other figures of the result give it, its formula.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "host_runtime/core/planner/system.h"

namespace csdsim::report {

/// A metric of result.json.
struct Metric {
  std::string_view name;
  std::string_view unit;       ///< "1" for shares and counts without a unit of their own
  std::string_view workloads;  ///< kinds of workloads whose runs have it, separated by spaces; "eval": csdsim eval
  std::string_view meaning;
  /// A formula (base/formula.h) over other metrics and paths of the document; empty where the run counts or measures.
  /// For the usual case: sequences of equal lengths that start together and are simulated whole.
  std::string_view formula;
};

/// All metrics: those of every run, and those of the features of these systems.
std::vector<Metric> metrics(const host::SystemKinds& systems);

/// The names of a workload's metrics; empty for a workload that is not built in.
std::vector<std::string> metric_names_of(std::string_view workload, const host::SystemKinds& systems);

/// Unit, meaning and formula of a metric; of all for "". UserError for an unknown one.
std::string metrics_text(std::string_view name, const host::SystemKinds& systems);

/// All metrics as Markdown tables, one for each set of workloads.
std::string metrics_markdown(const host::SystemKinds& systems);

}  // namespace csdsim::report
