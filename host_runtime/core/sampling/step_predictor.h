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
  double variance = 0;  ///< estimated variance of an observation around the fit
  double freedom = 1;   ///< degrees of freedom of `variance`
};

/// Predicts the costs of all steps. Predictions are linear in the measured costs. The steps of the most frequent
/// stratum (the base) are fitted by least squares. The fit uses work counts: a constant, flushed tokens, the share of
/// the engine and others. A second fit of each other stratum has what its steps cost more than a step of the base. A
/// fit uses two work counts fewer than there are observations (the base: one fewer with three), so that residuals
/// remain. The residuals of the base are interpolated over the steps.
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
