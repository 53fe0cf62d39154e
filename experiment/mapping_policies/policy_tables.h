// The figures of mapping policies as tables, and as a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/mapping_policies/policy_study.h"

namespace csdsim::experiment {

/// The figures of one variant of a policy.
struct PolicyRow {
  std::string policy;
  std::string tail;             ///< tail policy
  std::string embedding_group;  ///< m, "auto" or "adaptive"
  PolicyFigures figures;
};

/// What attends read and how long they take: an array with one object per row.
nlohmann::ordered_json read_table(const std::vector<PolicyRow>& rows);
/// What is written, moved by garbage collection, and held in DRAM.
nlohmann::ordered_json write_table(const std::vector<PolicyRow>& rows);
/// Tail policies and embedding groups of one policy.
nlohmann::ordered_json tail_table(const std::vector<PolicyRow>& rows);

/// One bar per policy for each of: latency and balance of dense and sparse attends, write amplification, pages read for
/// scattered tokens (SVG).
std::string policy_svg(const std::vector<PolicyRow>& rows);

}  // namespace csdsim::experiment
