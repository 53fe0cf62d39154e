#include "host_runtime/core/planner/systems/flexgen_ssd/dual_simplex.h"

namespace csdsim::host {

namespace {

constexpr double kViolation = 1e-10;  // of a row
constexpr double kPivot = 1e-9;
// Steps that choose the largest violation; later ones choose the first, which cannot cycle (Bland 1977).
constexpr int kGreedySteps = 60;
constexpr int kSteps = 1000;

/// The dual: maximise -limit . u for u >= 0 and -coefficients' . u <= cost. Columns are the rows of the primal, then
/// the slacks of the dual, then the right side. Line 0 holds the gains, further lines the variables of the primal.
class Tableau {
 public:
  Tableau(std::size_t lines, std::size_t columns)
      : columns_(columns), cells_((lines + 1) * (columns + 1), 0), basis_(lines) {}

  double& at(std::size_t line, std::size_t column) { return cells_[line * (columns_ + 1) + column]; }
  double& right(std::size_t line) { return at(line, columns_); }
  std::size_t& basis(std::size_t line) { return basis_[line - 1]; }

  /// The column whose gain is largest, or the first one with a gain.
  std::optional<std::size_t> entering(bool first) {
    std::optional<std::size_t> chosen;
    for (std::size_t c = 0; c < columns_; ++c) {
      if (at(0, c) <= kViolation || (chosen && at(0, c) <= at(0, *chosen))) continue;
      chosen = c;
      if (first) break;
    }
    return chosen;
  }

  /// The line that limits the column most; none if no line limits it. Among equal ones, the line with the largest
  /// pivot, because a small pivot may be a rounding error. With `first`, the line of the first variable (Bland's rule),
  /// which prevents cycles.
  std::optional<std::size_t> leaving(std::size_t column, bool first) {
    std::optional<std::size_t> chosen;
    for (std::size_t line = 1; line <= basis_.size(); ++line) {
      if (at(line, column) <= kPivot) continue;
      if (chosen) {
        const double left = right(line) * at(*chosen, column), best = right(*chosen) * at(line, column);
        const bool later = first ? basis(line) > basis(*chosen) : at(line, column) <= at(*chosen, column);
        if (left > best || (left == best && later)) continue;
      }
      chosen = line;
    }
    return chosen;
  }

  void pivot(std::size_t line, std::size_t column) {
    const double inverse = 1 / at(line, column);
    for (std::size_t c = 0; c <= columns_; ++c) at(line, c) *= inverse;
    for (std::size_t other = 0; other <= basis_.size(); ++other) {
      const double factor = at(other, column);
      if (other == line || factor == 0) continue;
      for (std::size_t c = 0; c <= columns_; ++c) at(other, c) -= factor * at(line, c);
      at(other, column) = 0;
    }
    basis(line) = column;
  }

 private:
  std::size_t columns_;
  std::vector<double> cells_;
  std::vector<std::size_t> basis_;
};

}  // namespace

void DualSimplex::at_most(std::vector<double> coefficients, double limit) {
  rows_.push_back({std::move(coefficients), limit});
}

std::optional<DualSimplex::Solution> DualSimplex::minimise() const {
  const std::size_t variables = cost_.size(), rows = rows_.size();
  Tableau tableau(variables, rows + variables);
  for (std::size_t i = 0; i < rows; ++i) {
    tableau.at(0, i) = -rows_[i].limit;
    for (std::size_t j = 0; j < variables; ++j) tableau.at(j + 1, i) = -rows_[i].coefficients[j];
  }
  for (std::size_t j = 0; j < variables; ++j) {
    tableau.at(j + 1, rows + j) = 1;
    tableau.right(j + 1) = cost_[j];
    tableau.basis(j + 1) = rows + j;
  }
  for (int step = 0; step < kSteps; ++step) {
    const bool first = step >= kGreedySteps;
    const std::optional<std::size_t> column = tableau.entering(first);
    if (!column) break;
    const std::optional<std::size_t> line = tableau.leaving(*column, first);
    if (!line) return std::nullopt;  // the dual is unbounded
    tableau.pivot(*line, *column);
  }
  Solution solution{.bound = -tableau.right(0), .variables = {}};
  for (std::size_t j = 0; j < variables; ++j) solution.variables.push_back(-tableau.at(0, rows + j));
  return solution;
}

}  // namespace csdsim::host
