// Exact minimum of a linear objective over six whole percentages and a few real variables, under linear constraints.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

namespace csdsim::host {

/// Minimises objective . y over y = (percentages, reals). For every row, coefficients . y <= limit. Percentages are
/// whole, and between the ends of their ranges; reals are not negative. The solver is branch and bound; bounds are
/// linear programs, solved with the simplex method on their duals. Any feasible point of the dual gives a valid bound,
/// so rounding and the limit of iterations cost time, not correctness. Rows hold within about 1e-9 of their scale, so a
/// `Value` decides which points count. Deterministic.
class PercentProgram {
 public:
  static constexpr std::size_t kPercents = 6, kReals = 3, kVariables = kPercents + kReals;
  using Point = std::array<std::uint32_t, kPercents>;
  using Coefficients = std::array<double, kVariables>;
  /// The exact objective of a point, or none if the point is not feasible.
  using Value = std::function<std::optional<double>(const Point&)>;

  /// An improvement that does not matter.
  struct Gain {
    double absolute = 0;
    double relative = 0;
  };

  struct Solution {
    Point point{};
    double value = 0;
  };

  /// Coefficients of reals are not negative here. Their values should be about as large as percentages.
  explicit PercentProgram(const Coefficients& objective) : objective_(objective) { high_.fill(100); }

  void at_most(const Coefficients& coefficients, double limit);
  /// Precondition: low <= high <= 100.
  void set_range(std::size_t percent, std::uint32_t low, std::uint32_t high);

  /// The best point whose value is smaller than `cutoff`; none if there is none. No point is better than the result by
  /// more than `gain`.
  std::optional<Solution> minimise(const Value& value, Gain gain,
                                   double cutoff = std::numeric_limits<double>::infinity()) const;

 private:
  struct Row {
    Coefficients coefficients;
    double limit;
  };
  struct Relaxed {
    double bound;
    std::array<double, kPercents> percents;
  };
  class Search;

  /// The linear program without whole percentages, between `low` and `high`; none if it has no solution.
  std::optional<Relaxed> relax(const Point& low, const Point& high) const;

  Coefficients objective_;
  std::vector<Row> rows_;
  Point low_{}, high_{};
};

}  // namespace csdsim::host
