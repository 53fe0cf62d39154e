#include "host_runtime/core/planner/step_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

constexpr std::size_t kTokenColumns = 3;  // constant, flushed, windowed
constexpr std::size_t kColumns = 7;       // and flushes of tokens and windows, now and before
// A work count enters the model only where this share of its spread over the measured steps is its own.
constexpr double kOwnShare = 0.05;

using Row = std::array<double, kColumns>;

Row row_of(const StepFeatures& f) {
  return {
      1.0, f.flushed, f.windowed, f.token_flushes, f.window_flushes, f.recent_token_flushes, f.recent_window_flushes};
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Least squares over the columns [from, to) by modified Gram-Schmidt, in order; a column without a spread of its own
/// gets coefficient 0.
Row fit(const std::vector<Row>& rows, std::span<const double> y, std::size_t from, std::size_t to) {
  const std::size_t n = rows.size();
  std::array<std::vector<double>, kColumns> q;
  std::array<Row, kColumns> r{};  // column j = sum_i r[i][j] q[i]
  std::array<bool, kColumns> used{};
  std::vector<double> rest(y.begin(), y.end());
  Row projected{};
  std::size_t rank = 0;
  for (std::size_t j = from; j < to && rank < n; ++j) {
    std::vector<double> column(n);
    for (std::size_t i = 0; i < n; ++i) column[i] = rows[i][j];
    double spread = std::sqrt(dot(column, column));
    for (std::size_t i = from; i < j; ++i) {
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
  for (std::size_t j = to; j-- > from;) {
    if (!used[j]) continue;
    double value = projected[j];
    for (std::size_t k = j + 1; k < to; ++k) value -= r[j][k] * beta[k];
    beta[j] = value / r[j][j];
  }
  return beta;
}

/// The constant and the token counts from the plain steps, then the flushes from what the others have on top. Where
/// there are too few plain steps, as in ragged batches, everything at once.
Row fit_strata(const std::vector<Row>& rows, std::span<const double> y, std::span<const Stratum> strata) {
  std::vector<Row> plain, flush;
  std::vector<double> plain_y, flush_y;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (strata[i] == Stratum::plain ? plain : flush).push_back(rows[i]);
    (strata[i] == Stratum::plain ? plain_y : flush_y).push_back(y[i]);
  }
  if (plain.size() < kTokenColumns) return fit(rows, y, 0, kColumns);
  Row beta = fit(plain, plain_y, 0, kTokenColumns);
  for (std::size_t i = 0; i < flush.size(); ++i) flush_y[i] -= dot(flush[i], beta);
  const Row extra = fit(flush, flush_y, kTokenColumns, kColumns);
  std::copy(extra.begin() + kTokenColumns, extra.end(), beta.begin() + kTokenColumns);
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
  // One observation for each stratum in each group: how a flush drains from step to step is not the model's business.
  struct Observation {
    Stratum stratum;
    std::vector<std::uint32_t> steps;
    double at = 0;  // mean step
    double cost = 0;
  };
  std::vector<Observation> observations;
  std::size_t next = 0;
  for (const MeasuredGroup& g : groups) {
    std::array<Observation, kStrata> of_group;
    for (std::uint32_t s = g.first; s < g.first + g.steps; ++s) {
      Observation& o = of_group[static_cast<std::size_t>(features[s].stratum())];
      o.stratum = features[s].stratum();
      o.steps.push_back(s);
      o.at += s;
      o.cost += cost[next++];
    }
    for (Observation& o : of_group) {
      if (o.steps.empty()) continue;
      o.at /= static_cast<double>(o.steps.size());
      o.cost /= static_cast<double>(o.steps.size());
      observations.push_back(std::move(o));
    }
  }
  const auto mean = [](const Observation& o, const auto& value) {
    double sum = 0;
    for (const std::uint32_t s : o.steps) sum += value(s);
    return sum / static_cast<double>(o.steps.size());
  };

  std::vector<Row> rows;
  std::vector<double> costs;
  std::vector<Stratum> strata;
  for (const Observation& o : observations) {
    Row& row = rows.emplace_back();
    for (std::size_t j = 0; j < kColumns; ++j)
      row[j] = mean(o, [&](std::uint32_t s) { return row_of(features[s])[j]; });
    costs.push_back(o.cost);
    strata.push_back(o.stratum);
  }
  const Row beta = fit_strata(rows, costs, strata);

  std::array<Correction, kStrata> corrections;
  const auto corrected = [&](std::uint32_t s) {
    const Stratum stratum = features[s].stratum();
    double value = dot(row_of(features[s]), beta) + corrections[0](s);
    if (stratum != Stratum::plain) value += corrections[static_cast<std::size_t>(stratum)](s);
    return value;
  };
  for (std::size_t k = 0; k < kStrata; ++k) {
    Correction found;
    for (const Observation& o : observations)
      if (o.stratum == static_cast<Stratum>(k)) found.add(o.at, o.cost - mean(o, corrected));
    corrections[k] = found;
  }

  std::vector<double> predicted(features.size());
  for (std::uint32_t s = 0; s < features.size(); ++s) predicted[s] = corrected(s);
  return predicted;
}

}  // namespace csdsim::host
