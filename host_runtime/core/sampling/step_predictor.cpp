#include "host_runtime/core/sampling/step_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

using Row = StepPredictor::Row;
constexpr std::size_t kColumns = StepPredictor::kColumns;
// Constant, flushed, windowed, share of the engine, groups of the newest tokens; then flushes of tokens and windows,
// now and before.
constexpr std::size_t kTokenColumns = 5;
constexpr std::size_t kAlways = 3;  // of them, those that every layout has
// A work count enters the model only if the measured steps show this share of what is its own in the run: a coefficient
// from less would be extrapolated.
constexpr double kShownShare = 0.3;

Row row_of(const StepFeatures& f) {
  return {1.0,
          f.flushed,
          f.windowed,
          f.engine_share,
          f.newest_groups,
          f.token_flushes,
          f.window_flushes,
          f.recent_token_flushes,
          f.recent_window_flushes};
}

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// The columns [from, to) of `rows`, orthonormalised in order by modified Gram-Schmidt. A column with less of its own
/// than `least` (root mean square) is left out.
struct Basis {
  std::array<std::vector<double>, kColumns> q;
  std::array<Row, kColumns> r{};  ///< column j = sum_i r[i][j] q[i]
  std::array<bool, kColumns> used{};

  Basis(const std::vector<Row>& rows, std::size_t from, std::size_t to, const Row& least) {
    const std::size_t n = rows.size();
    std::size_t rank = 0;
    for (std::size_t j = from; j < to && rank < n; ++j) {
      std::vector<double> column(n);
      for (std::size_t i = 0; i < n; ++i) column[i] = rows[i][j];
      const double whole = std::sqrt(dot(column, column));
      for (std::size_t i = from; i < j; ++i) {
        if (!used[i]) continue;
        r[i][j] = dot(q[i], column);
        for (std::size_t k = 0; k < n; ++k) column[k] -= r[i][j] * q[i][k];
      }
      const double own = std::sqrt(dot(column, column));
      if (own <= 1e-9 * whole || own < least[j] * std::sqrt(static_cast<double>(n))) continue;
      for (double& v : column) v /= own;
      r[j][j] = own;
      q[j] = std::move(column);
      used[j] = true;
      ++rank;
    }
  }
};

/// Coefficients of the least-squares fit of y; 0 for what the basis leaves out.
Row least_squares(const std::vector<Row>& rows, std::span<const double> y, std::size_t from, std::size_t to,
                  const Row& own_in_run) {
  Row least = own_in_run;
  for (double& v : least) v *= kShownShare;
  const Basis basis(rows, from, to, least);
  std::vector<double> rest(y.begin(), y.end());
  Row projected{}, beta{};
  for (std::size_t j = from; j < to; ++j) {
    if (!basis.used[j]) continue;
    projected[j] = dot(basis.q[j], rest);
    for (std::size_t k = 0; k < rest.size(); ++k) rest[k] -= projected[j] * basis.q[j][k];
  }
  for (std::size_t j = to; j-- > from;) {
    if (!basis.used[j]) continue;
    double value = projected[j];
    for (std::size_t k = j + 1; k < to; ++k) value -= basis.r[j][k] * beta[k];
    beta[j] = value / basis.r[j][j];
  }
  return beta;
}

Row own_in_run(const std::vector<Row>& rows, std::size_t from, std::size_t to) {
  const Basis basis(rows, from, to, {});
  Row own{};
  for (std::size_t j = from; j < to; ++j)
    if (basis.used[j]) own[j] = basis.r[j][j] / std::sqrt(static_cast<double>(rows.size()));
  return own;
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

StepPredictor::StepPredictor(std::span<const StepFeatures> features) : features_(features) {
  std::vector<Row> all, plain, flush;
  for (const StepFeatures& f : features) {
    all.push_back(row_of(f));
    (f.stratum() == Stratum::plain ? plain : flush).push_back(all.back());
  }
  own_all_ = own_in_run(all, 0, kColumns);
  own_plain_ = own_in_run(plain, 0, kTokenColumns);
  own_flush_ = own_in_run(flush, kTokenColumns, kColumns);
}

/// The constant and the token counts from the plain steps, then the flushes from what the others have on top. Where
/// there are too few plain steps, as in ragged batches, everything at once.
StepPredictor::Row StepPredictor::fit(const std::vector<Row>& rows, std::span<const double> cost,
                                      std::span<const Stratum> strata) const {
  std::vector<Row> plain, flush;
  std::vector<double> plain_cost, flush_cost;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    (strata[i] == Stratum::plain ? plain : flush).push_back(rows[i]);
    (strata[i] == Stratum::plain ? plain_cost : flush_cost).push_back(cost[i]);
  }
  const auto present = std::count_if(own_plain_.begin() + kAlways, own_plain_.begin() + kTokenColumns,
                                     [](double own) { return own > 0; });
  if (plain.size() < kAlways + static_cast<std::size_t>(present))
    return least_squares(rows, cost, 0, kColumns, own_all_);
  Row beta = least_squares(plain, plain_cost, 0, kTokenColumns, own_plain_);
  for (std::size_t i = 0; i < flush.size(); ++i) flush_cost[i] -= dot(flush[i], beta);
  const Row extra = least_squares(flush, flush_cost, kTokenColumns, kColumns, own_flush_);
  std::copy(extra.begin() + kTokenColumns, extra.end(), beta.begin() + kTokenColumns);
  return beta;
}

std::vector<double> StepPredictor::predict(std::span<const MeasuredGroup> groups, std::span<const double> cost) const {
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
      Observation& o = of_group[static_cast<std::size_t>(features_[s].stratum())];
      o.stratum = features_[s].stratum();
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
      row[j] = mean(o, [&](std::uint32_t s) { return row_of(features_[s])[j]; });
    costs.push_back(o.cost);
    strata.push_back(o.stratum);
  }
  const Row beta = fit(rows, costs, strata);

  std::array<Correction, kStrata> corrections;
  const auto corrected = [&](std::uint32_t s) {
    const Stratum stratum = features_[s].stratum();
    double value = dot(row_of(features_[s]), beta) + corrections[0](s);
    if (stratum != Stratum::plain) value += corrections[static_cast<std::size_t>(stratum)](s);
    return value;
  };
  for (std::size_t k = 0; k < kStrata; ++k) {
    Correction found;
    for (const Observation& o : observations)
      if (o.stratum == static_cast<Stratum>(k)) found.add(o.at, o.cost - mean(o, corrected));
    corrections[k] = found;
  }

  std::vector<double> predicted(features_.size());
  for (std::uint32_t s = 0; s < features_.size(); ++s) predicted[s] = corrected(s);
  return predicted;
}

}  // namespace csdsim::host
