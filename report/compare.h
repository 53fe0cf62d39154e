// Compares two sets of results.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace csdsim::report {

struct ComparedPoint {
  std::vector<std::pair<std::string, nlohmann::ordered_json>> axes;
  nlohmann::ordered_json result;
};

/// Compares the points that have the same axes. Points that differ in the axis `seed` alone are samples of one point: a
/// metric is their mean. A metric has changed if the difference exceeds its noise: twice the standard error of the
/// samples and, where runs were sampled, their estimated errors. Figures of the host (`wall`) are not compared.
/// {build: {name: [a, b]}, parameters: [{path, a, b, points}], metrics: [{point, metric, a, b, change, noise}],
/// metrics_only_in_a, metrics_only_in_b: [metric], only_in_a, only_in_b: [point], points, equal}; `change` and `noise`
/// are relative to a, null where that is 0. A metric is only in a if a sample of b has no number for it.
nlohmann::ordered_json compare_results(const std::vector<ComparedPoint>& a, const std::vector<ComparedPoint>& b);

/// The comparison for people.
std::string comparison_text(const nlohmann::ordered_json& comparison);

}  // namespace csdsim::report
