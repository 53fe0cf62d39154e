// A small dense linear program.
#pragma once

#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

namespace csdsim::host {

/// Minimises cost . x for x >= 0 and coefficients . x <= limit for every row. No cost is negative, so that zero is a
/// feasible point of the dual, from which the simplex method starts. For some ten variables and constraints.
class DualSimplex {
 public:
  struct Solution {
    double bound = 0;               ///< at most the minimum; equal to it unless the iterations ran out
    std::vector<double> variables;  ///< x
  };

  explicit DualSimplex(std::vector<double> cost) : cost_(std::move(cost)) {}

  /// Precondition: one coefficient per variable.
  void at_most(std::vector<double> coefficients, double limit);
  /// None if no x satisfies the rows.
  std::optional<Solution> minimise() const;

 private:
  struct Row {
    std::vector<double> coefficients;
    double limit;
  };

  std::vector<double> cost_;
  std::vector<Row> rows_;
};

}  // namespace csdsim::host
