#include "host_runtime/core/planner/step_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

constexpr std::size_t kColumns = 5;
// A work count enters the model only where this share of its spread over the groups is its own; less is noise.
constexpr double kOwnShare = 0.05;

using Row = std::array<double, kColumns>;

Row row_of(const StepFeatures& f) { return {1.0, f.flushed, f.windowed, f.token_flushes, f.window_flushes}; }

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Least squares by modified Gram-Schmidt, columns in order; a column without a spread of its own gets coefficient 0.
Row fit(const std::vector<Row>& rows, std::span<const double> y) {
  const std::size_t n = rows.size();
  std::array<std::vector<double>, kColumns> q;
  std::array<Row, kColumns> r{};  // column j = sum_i r[i][j] q[i]
  std::array<bool, kColumns> used{};
  std::vector<double> rest(y.begin(), y.end());
  Row projected{};
  std::size_t rank = 0;
  for (std::size_t j = 0; j < kColumns && rank < n; ++j) {
    std::vector<double> column(n);
    for (std::size_t i = 0; i < n; ++i) column[i] = rows[i][j];
    double spread = std::sqrt(dot(column, column));
    for (std::size_t i = 0; i < j; ++i) {
      if (!used[i]) continue;
      r[i][j] = dot(q[i], column);
      for (std::size_t k = 0; k < n; ++k) column[k] -= r[i][j] * q[i][k];
      if (i == 0) spread = std::sqrt(dot(column, column));  // about the mean
    }
    const double own = std::sqrt(dot(column, column));
    const double floor = j == 0 ? 0 : std::max(kOwnShare * spread, 1e-9 * std::abs(r[0][j]));
    if (!(own > floor)) continue;
    for (double& v : column) v /= own;
    r[j][j] = own;
    used[j] = true;
    ++rank;
    q[j] = std::move(column);
    projected[j] = dot(q[j], rest);
    for (std::size_t k = 0; k < n; ++k) rest[k] -= projected[j] * q[j][k];
  }
  Row beta{};
  for (std::size_t j = kColumns; j-- > 0;) {
    if (!used[j]) continue;
    double value = projected[j];
    for (std::size_t k = j + 1; k < kColumns; ++k) value -= r[j][k] * beta[k];
    beta[j] = value / r[j][j];
  }
  return beta;
}

/// Piecewise linear through its knots, constant outside; 0 without knots.
class Correction {
 public:
  void add(double at, double value) { knots_.push_back({at, value}); }
  double operator()(double at) const {
    if (knots_.empty()) return 0;
    const auto right =
        std::lower_bound(knots_.begin(), knots_.end(), at, [](const Knot& k, double x) { return k.at < x; });
    if (right == knots_.begin()) return knots_.front().value;
    if (right == knots_.end()) return knots_.back().value;
    const Knot& left = *(right - 1);
    return left.value + (right->value - left.value) * (at - left.at) / (right->at - left.at);
  }

 private:
  struct Knot {
    double at, value;
  };
  std::vector<Knot> knots_;
};

}  // namespace

std::vector<double> predict_steps(std::span<const StepFeatures> features, std::span<const MeasuredGroup> groups,
                                  std::span<const double> cost) {
  if (groups.empty()) throw InternalError("no measured step to predict from");
  std::vector<Row> rows;
  std::vector<double> means;
  std::vector<Stratum> strata;
  std::size_t next = 0;
  for (const MeasuredGroup& g : groups) {
    Row row{};
    double sum = 0;
    Stratum highest = Stratum::plain;
    for (std::uint32_t s = g.first; s < g.first + g.steps; ++s) {
      const Row one = row_of(features[s]);
      for (std::size_t j = 0; j < kColumns; ++j) row[j] += one[j] / g.steps;
      sum += cost[next++];
      highest = std::max(highest, features[s].stratum());
    }
    rows.push_back(row);
    means.push_back(sum / g.steps);
    strata.push_back(highest);
  }
  const Row beta = fit(rows, means);
  const auto model = [&](std::uint32_t s) { return dot(row_of(features[s]), beta); };

  std::array<Correction, kStrata> corrections;
  for (std::size_t k = 0; k < kStrata; ++k)
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (strata[g] != static_cast<Stratum>(k)) continue;
      double missing = means[g] * groups[g].steps, at = 0;
      std::uint32_t own = 0;
      for (std::uint32_t s = groups[g].first; s < groups[g].first + groups[g].steps; ++s) {
        missing -= model(s);
        const auto stratum = static_cast<std::size_t>(features[s].stratum());
        if (stratum == k) {
          ++own;
          at += s;
        } else {
          missing -= corrections[stratum](s);  // of a lower stratum, complete by now
        }
      }
      corrections[k].add(at / own, missing / own);
    }

  std::vector<double> predicted(features.size());
  for (std::uint32_t s = 0; s < features.size(); ++s)
    predicted[s] = model(s) + corrections[static_cast<std::size_t>(features[s].stratum())](s);
  return predicted;
}

}  // namespace csdsim::host
