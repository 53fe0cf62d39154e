// Predicts the cost of every decode step from the few that were measured.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/sampling/step_features.h"

namespace csdsim::host {

/// Consecutive decode steps that were measured together.
struct MeasuredGroup {
  std::uint32_t first = 0;
  std::uint32_t steps = 1;
};

/// How far the measured steps of a stratum are from the fit.
struct StratumResiduals {
  Stratum stratum = Stratum::plain;
  /// Positions in the costs of the steps of each observation: the steps of the stratum in one measured group.
  std::vector<std::vector<std::size_t>> observations;
  double variance = 0;  ///< of an observation, unbiased
  double freedom = 1;   ///< degrees of freedom of `variance`
};

/// Costs of all steps, linear in the measured costs: a least-squares fit in the work counts (constant, flushed tokens,
/// share of the engine, ...) to the steps of the most frequent stratum, and what the steps of the other strata have on
/// top. A fit takes two work counts fewer than there are observations, so that residuals show how good it is. What it
/// misses is interpolated over the steps of the most frequent stratum.
class StepPredictor {
 public:
  /// `features` of all steps; must outlive the predictor.
  explicit StepPredictor(std::span<const StepFeatures> features);

  /// `groups` are disjoint and ascending; `cost` holds their steps one after another. InternalError if there is no
  /// group.
  std::vector<double> predict(std::span<const MeasuredGroup> groups, std::span<const double> cost) const;
  /// The residuals of that fit, by stratum.
  std::vector<StratumResiduals> residuals(std::span<const MeasuredGroup> groups, std::span<const double> cost) const;

  static constexpr std::size_t kColumns = 10;  ///< work counts in the model, the constant included
  using Row = std::array<double, kColumns>;

  /// The work counts of all steps.
  struct Run {
    std::span<const StepFeatures> features;
    std::vector<Row> rows;                     ///< [step]
    std::array<std::size_t, kStrata> steps{};  ///< [stratum]
    /// [stratum] How much of each work count is its own, not a combination of those before it; root mean square.
    std::array<Row, kStrata> own{};
  };

 private:
  Run run_;
};

}  // namespace csdsim::host
