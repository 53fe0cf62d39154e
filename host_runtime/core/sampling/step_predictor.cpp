#include "host_runtime/core/sampling/step_predictor.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace csdsim::host {

namespace {

using Row = StepPredictor::Row;
constexpr std::size_t kColumns = StepPredictor::kColumns;
constexpr std::size_t kOfFlushes = 6;  // from here on, work counts of flushes, now and before
// A work count enters the fit only if the measured steps show this share of what is its own in the run: a coefficient
// from less would be extrapolated.
constexpr double kShownShare = 0.3;
// Observations beyond the work counts of a fit, which show its residuals.
constexpr std::size_t kSpare = 2;
// With so many degrees of freedom the variance comes from the differences of neighbours. Source of this estimator, its
// degrees of freedom included: J. von Neumann et al., The Mean Square Successive Difference, Annals of Mathematical
// Statistics 12 (1941).
constexpr double kManySpare = 6;

/// Work counts, in the order in which they enter a fit: few observations allow few of them.
Row row_of(const StepFeatures& f) {
  return {1.0,
          f.flushed,
          f.engine_share,
          f.windowed,
          f.newest_groups,
          f.tail,
          f.token_flushes,
          f.window_flushes,
          f.recent_token_flushes,
          f.recent_window_flushes};
}

/// The columns of a fit: all, or the constant and the flushes.
bool enters(std::size_t column, bool flushes_only) { return !flushes_only || column == 0 || column >= kOfFlushes; }

double dot(std::span<const double> a, std::span<const double> b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

/// Columns of `rows`, orthonormalised in order by modified Gram-Schmidt, at most `most`. A column with less of its own
/// than `least` (root mean square) is left out.
struct Basis {
  std::array<std::vector<double>, kColumns> q;
  std::array<Row, kColumns> r{};  ///< column j = sum_i r[i][j] q[i]
  std::array<bool, kColumns> used{};
  std::size_t rank = 0;

  Basis(const std::vector<Row>& rows, bool flushes_only, std::size_t most, const Row& least) {
    const std::size_t n = rows.size();
    for (std::size_t j = 0; j < kColumns && rank < most; ++j) {
      if (!enters(j, flushes_only)) continue;
      std::vector<double> column(n);
      for (std::size_t i = 0; i < n; ++i) column[i] = rows[i][j];
      const double whole = std::sqrt(dot(column, column));
      for (std::size_t i = 0; i < j; ++i) {
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

struct Coefficients {
  Row beta{};  ///< 0 for what the fit leaves out
  std::size_t rank = 0;
};

/// The least-squares fit of y.
Coefficients least_squares(const std::vector<Row>& rows, std::span<const double> y, bool flushes_only,
                           const Row& own_in_run) {
  Row least = own_in_run;
  for (double& v : least) v *= kShownShare;
  // Three places of the most frequent stratum follow the context, at the price of one degree of freedom.
  const std::size_t fewest = !flushes_only && rows.size() > kSpare ? 2 : 1;
  const Basis basis(rows, flushes_only, std::max(fewest, rows.size() - std::min(rows.size(), kSpare)), least);
  std::vector<double> rest(y.begin(), y.end());
  Row projected{};
  Coefficients fit{.rank = basis.rank};
  for (std::size_t j = 0; j < kColumns; ++j) {
    if (!basis.used[j]) continue;
    projected[j] = dot(basis.q[j], rest);
    for (std::size_t k = 0; k < rest.size(); ++k) rest[k] -= projected[j] * basis.q[j][k];
  }
  for (std::size_t j = kColumns; j-- > 0;) {
    if (!basis.used[j]) continue;
    double value = projected[j];
    for (std::size_t k = j + 1; k < kColumns; ++k) value -= basis.r[j][k] * fit.beta[k];
    fit.beta[j] = value / basis.r[j][j];
  }
  return fit;
}

Row own_in_run(const std::vector<Row>& rows) {
  const Basis basis(rows, false, kColumns, {});
  Row own{};
  for (std::size_t j = 0; j < kColumns; ++j)
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

/// The steps of a stratum in one measured group: how a flush drains from step to step is not the model's business.
struct Observation {
  Stratum stratum = Stratum::plain;
  std::vector<std::uint32_t> steps;
  std::vector<std::size_t> costs;  ///< their positions in the costs
  double at = 0;                   ///< mean step
  double cost = 0;                 ///< mean
};

std::vector<Observation> observe(std::span<const StepFeatures> features, std::span<const MeasuredGroup> groups,
                                 std::span<const double> cost) {
  std::vector<Observation> observations;
  std::size_t next = 0;
  for (const MeasuredGroup& g : groups) {
    std::array<Observation, kStrata> of_group;
    for (std::uint32_t s = g.first; s < g.first + g.steps; ++s) {
      Observation& o = of_group[static_cast<std::size_t>(features[s].stratum())];
      o.stratum = features[s].stratum();
      o.steps.push_back(s);
      o.costs.push_back(next);
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
  return observations;
}

/// The least-squares fits to the measured steps.
class Fit {
 public:
  Fit(const StepPredictor::Run& run, std::span<const MeasuredGroup> groups, std::span<const double> cost) : run_(run) {
    if (groups.empty()) throw InternalError("no measured step to predict from");
    observations_ = observe(run.features, groups, cost);
    base_ = observations_.front().stratum;
    for (const Observation& o : observations_)
      if (run.steps[index(o.stratum)] > run.steps[index(base_)]) base_ = o.stratum;
    fit(base_);
    for (const Observation& o : observations_)
      if (o.stratum == base_) missed_.add(o.at, o.cost - dot(mean_row(o.steps), fits_[index(base_)].beta));
    for (std::size_t k = 0; k < kStrata; ++k)
      if (static_cast<Stratum>(k) != base_) fit(static_cast<Stratum>(k));
  }

  double predicted(std::uint32_t step) const {
    const Stratum stratum = run_.features[step].stratum();
    return of_base(step) + (stratum == base_ ? 0 : dot(run_.rows[step], fits_[index(stratum)].beta));
  }

  /// Residuals of a stratum; without observations if none of its steps is measured.
  StratumResiduals residuals(Stratum stratum) const {
    StratumResiduals of;
    of.stratum = stratum;
    const Coefficients& fit = fits_[index(stratum)];
    std::vector<double> residuals;
    for (const Observation& o : observations_) {
      if (o.stratum != stratum) continue;
      residuals.push_back(own_cost(o) - dot(mean_row(o.steps), fit.beta));
      of.observations.push_back(o.costs);
    }
    const std::size_t count = residuals.size();
    if (count <= fit.rank) {
      // A single observation says nothing about the others: they may differ by all that it has.
      of.variance = std::pow(fit.beta[0], 2);
      return of;
    }
    const auto places = static_cast<double>(count);
    of.freedom = static_cast<double>(count - fit.rank);
    of.variance = dot(residuals, residuals) / of.freedom;
    if (stratum != base_ || of.freedom < kManySpare) return of;
    // The fit misses steps that are near each other by nearly the same. This part is interpolated; only the differences
    // of neighbours remain.
    double squares = 0;
    for (std::size_t i = 1; i < count; ++i) squares += std::pow(residuals[i] - residuals[i - 1], 2);
    of.variance = squares / (2 * (places - 1)) * places / of.freedom;
    of.freedom *= 2 * (places - 1) * (places - 1) / (3 * places - 4) / places;
    return of;
  }

 private:
  static std::size_t index(Stratum stratum) { return static_cast<std::size_t>(stratum); }

  void fit(Stratum stratum) {
    std::vector<Row> rows;
    std::vector<double> costs;
    for (const Observation& o : observations_) {
      if (o.stratum != stratum) continue;
      rows.push_back(mean_row(o.steps));
      costs.push_back(own_cost(o));
    }
    if (!rows.empty()) fits_[index(stratum)] = least_squares(rows, costs, stratum != base_, run_.own[index(stratum)]);
  }

  /// The cost of a step of the base.
  double of_base(std::uint32_t step) const { return dot(run_.rows[step], fits_[index(base_)].beta) + missed_(step); }
  /// The cost of an observation of the base, and what others have on top.
  double own_cost(const Observation& o) const {
    double cost = o.cost;
    if (o.stratum != base_)
      for (const std::uint32_t s : o.steps) cost -= of_base(s) / static_cast<double>(o.steps.size());
    return cost;
  }
  Row mean_row(std::span<const std::uint32_t> steps) const {
    Row row{};
    for (const std::uint32_t s : steps)
      for (std::size_t j = 0; j < kColumns; ++j) row[j] += run_.rows[s][j] / static_cast<double>(steps.size());
    return row;
  }

  const StepPredictor::Run& run_;
  std::vector<Observation> observations_;
  Stratum base_ = Stratum::plain;             ///< the most frequent stratum of those observed
  std::array<Coefficients, kStrata> fits_{};  ///< the fit of the base, and what the others have on top
  Correction missed_;                         ///< by the fit of the base
};

}  // namespace

StepPredictor::StepPredictor(std::span<const StepFeatures> features) : run_{.features = features, .rows = {}} {
  std::array<std::vector<Row>, kStrata> by_stratum;
  for (const StepFeatures& f : features) {
    run_.rows.push_back(row_of(f));
    by_stratum[static_cast<std::size_t>(f.stratum())].push_back(run_.rows.back());
  }
  for (std::size_t k = 0; k < kStrata; ++k) {
    run_.steps[k] = by_stratum[k].size();
    run_.own[k] = own_in_run(by_stratum[k]);
  }
}

std::vector<double> StepPredictor::predict(std::span<const MeasuredGroup> groups, std::span<const double> cost) const {
  const Fit fit(run_, groups, cost);
  std::vector<double> predicted(run_.features.size());
  for (std::uint32_t s = 0; s < predicted.size(); ++s) predicted[s] = fit.predicted(s);
  return predicted;
}

std::vector<StratumResiduals> StepPredictor::residuals(std::span<const MeasuredGroup> groups,
                                                       std::span<const double> cost) const {
  const Fit fit(run_, groups, cost);
  std::vector<StratumResiduals> all;
  for (std::size_t k = 0; k < kStrata; ++k) {
    StratumResiduals of = fit.residuals(static_cast<Stratum>(k));
    if (!of.observations.empty()) all.push_back(std::move(of));
  }
  return all;
}

}  // namespace csdsim::host
