#include "host_runtime/core/planner/systems/flexgen_ssd/percent_program.h"

#include <algorithm>
#include <cmath>

#include "host_runtime/core/planner/systems/flexgen_ssd/dual_simplex.h"

namespace csdsim::host {

namespace {

// Constraints of the linear programs are this much wider, in percent, so that rounding excludes no whole point. Rows
// that a real variable can always satisfy exclude none.
constexpr double kSlack = 1e-8;
// Distance from a whole number that counts as rounding.
constexpr double kWhole = 1e-6;

}  // namespace

void PercentProgram::at_most(const Coefficients& coefficients, double limit) {
  double scale = 0;
  for (const double c : coefficients) scale = std::max(scale, std::abs(c));
  if (scale == 0) scale = std::max(1.0, std::abs(limit));
  const bool soft = *std::min_element(coefficients.begin() + kPercents, coefficients.end()) < 0;
  Row row{.coefficients = coefficients, .limit = limit / scale + (soft ? 0 : kSlack)};
  for (double& c : row.coefficients) c /= scale;
  rows_.push_back(row);
}

void PercentProgram::set_range(std::size_t percent, std::uint32_t low, std::uint32_t high) {
  low_[percent] = low;
  high_[percent] = high;
}

std::optional<PercentProgram::Relaxed> PercentProgram::relax(const Point& low, const Point& high) const {
  // Variables of the linear program are distances from the end of a range at which the objective is smallest.
  Coefficients start{}, sign{};
  double fixed = 0;
  std::vector<std::size_t> free;
  std::vector<double> cost;
  for (std::size_t j = 0; j < kVariables; ++j) {
    const bool percent = j < kPercents, down = percent && objective_[j] < 0;
    start[j] = !percent ? 0 : (down ? high[j] : low[j]);
    sign[j] = down ? -1 : 1;
    fixed += objective_[j] * start[j];
    if (percent && low[j] == high[j]) continue;
    free.push_back(j);
    cost.push_back(std::abs(objective_[j]));
  }
  DualSimplex simplex(cost);
  for (const Row& row : rows_) {
    std::vector<double> coefficients;
    double limit = row.limit;
    for (std::size_t j = 0; j < kVariables; ++j) limit -= row.coefficients[j] * start[j];
    for (const std::size_t j : free) coefficients.push_back(sign[j] * row.coefficients[j]);
    simplex.at_most(coefficients, limit);
  }
  for (std::size_t i = 0; i < free.size(); ++i) {
    if (free[i] >= kPercents) continue;
    std::vector<double> one(free.size(), 0);
    one[i] = 1;
    simplex.at_most(one, high[free[i]] - low[free[i]]);
  }
  const std::optional<DualSimplex::Solution> solution = simplex.minimise();
  if (!solution) return std::nullopt;
  Relaxed relaxed{.bound = fixed + solution->bound, .percents = {}};
  std::copy_n(start.begin(), kPercents, relaxed.percents.begin());
  for (std::size_t i = 0; i < free.size(); ++i)
    if (free[i] < kPercents) relaxed.percents[free[i]] += sign[free[i]] * solution->variables[i];
  return relaxed;
}

/// Depth-first branch and bound. The half that is nearer to the solution of the linear program comes first.
class PercentProgram::Search {
 public:
  Search(const PercentProgram& program, const Value& value, Gain gain, double cutoff)
      : program_(program), value_(value), gain_(gain), cutoff_(cutoff) {}

  void explore(const Point& low, const Point& high) {
    const std::optional<Relaxed> relaxed = program_.relax(low, high);
    if (!relaxed || hopeless(relaxed->bound)) return;
    try_rounded(*relaxed, low, high, 0.5);
    try_rounded(*relaxed, low, high, kWhole);
    if (hopeless(relaxed->bound)) return;
    const std::optional<std::size_t> branch = branching_percent(*relaxed, low, high);
    if (!branch) return;
    const std::size_t j = *branch;
    const double at = std::clamp<double>(relaxed->percents[j], low[j], high[j]);
    const std::uint32_t last_below = std::min(static_cast<std::uint32_t>(at + kWhole), high[j] - 1);
    Point below_high = high, above_low = low;
    below_high[j] = last_below;
    above_low[j] = last_below + 1;
    if (at - last_below <= 0.5) {
      explore(low, below_high);
      explore(above_low, high);
    } else {
      explore(above_low, high);
      explore(low, below_high);
    }
  }

  const std::optional<Solution>& best() const { return best_; }

 private:
  bool hopeless(double bound) const {
    return bound >= (best_ ? best_->value - gain_.absolute - gain_.relative * std::abs(best_->value) : cutoff_);
  }

  void try_rounded(const Relaxed& relaxed, const Point& low, const Point& high, double up) {
    Point point;
    for (std::size_t j = 0; j < kPercents; ++j)
      point[j] = static_cast<std::uint32_t>(std::clamp<double>(std::floor(relaxed.percents[j] + up), low[j], high[j]));
    const std::optional<double> value = value_(point);
    if (value && *value < (best_ ? best_->value : cutoff_)) best_ = Solution{.point = point, .value = *value};
  }

  /// The percentage farthest from a whole number, else the one with the widest range; none if all ranges are points.
  static std::optional<std::size_t> branching_percent(const Relaxed& relaxed, const Point& low, const Point& high) {
    std::optional<std::size_t> chosen;
    double most = kWhole;
    for (std::size_t j = 0; j < kPercents; ++j) {
      const double off = std::abs(relaxed.percents[j] - std::round(relaxed.percents[j]));
      if (low[j] == high[j] || off <= most) continue;
      chosen = j;
      most = off;
    }
    if (chosen) return chosen;
    std::uint32_t widest = 0;
    for (std::size_t j = 0; j < kPercents; ++j) {
      if (high[j] - low[j] <= widest) continue;
      chosen = j;
      widest = high[j] - low[j];
    }
    return chosen;
  }

  const PercentProgram& program_;
  const Value& value_;
  Gain gain_;
  double cutoff_;
  std::optional<Solution> best_;
};

std::optional<PercentProgram::Solution> PercentProgram::minimise(const Value& value, Gain gain, double cutoff) const {
  Search search(*this, value, gain, cutoff);
  search.explore(low_, high_);
  return search.best();
}

}  // namespace csdsim::host
