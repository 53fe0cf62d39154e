// Formats the figures of mapping policies as tables and as charts.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/mapping_policies/policy_study.h"
#include "report/chart_page.h"

namespace csdsim::experiment {

/// The figures of one variant of a policy.
struct PolicyRow {
  std::string policy;
  std::string tail;             ///< tail policy
  std::string embedding_group;  ///< m, "auto" or "adaptive"
  PolicyFigures figures;
};

/// Pages and latency of attends: an array with one object per row.
nlohmann::ordered_json read_table(const std::vector<PolicyRow>& rows);
/// Pages written and moved by garbage collection, and DRAM use.
nlohmann::ordered_json write_table(const std::vector<PolicyRow>& rows);
/// Figures by tail policy and embedding group of one policy.
nlohmann::ordered_json tail_table(const std::vector<PolicyRow>& rows);

/// Charts with one bar per policy for each of: latency and balance of dense and sparse attends, write amplification,
/// pages read for scattered tokens.
std::vector<report::Chart> policy_charts(const std::vector<PolicyRow>& rows);

}  // namespace csdsim::experiment
