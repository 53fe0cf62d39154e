// The figures of mapping policies as tables, and as a picture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "experiment/mapping_policies/policy_study.h"

namespace csdsim::experiment {

/// A variant's figures.
struct PolicyRow {
  std::string policy;
  std::string tail;             ///< tail policy
  std::string embedding_group;  ///< m, "auto" or "adaptive"
  PolicyFigures figures;
};

/// What attends read and how long they take: rows of {policy, ...}.
nlohmann::ordered_json read_table(const std::vector<PolicyRow>& rows);
/// What is written, moved and held.
nlohmann::ordered_json write_table(const std::vector<PolicyRow>& rows);
/// Tail policies and embedding groups of one policy.
nlohmann::ordered_json tail_table(const std::vector<PolicyRow>& rows);

/// A table of equal rows as CSV (RFC 4180), a header line first.
std::string table_csv(const nlohmann::ordered_json& table);

/// Bars a policy: latency and balance of dense and sparse attends, write amplification, rows in pages (SVG).
std::string policy_svg(const std::vector<PolicyRow>& rows);

}  // namespace csdsim::experiment
