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

/// Costs of all steps, linear in the measured costs. A least-squares model in the work counts (constant, flushed and
/// windowed tokens, share of the engine, groups of the newest tokens, flushes now and before) carries the shape; what
/// it misses is interpolated over the steps, first for all from the plain ones, then within each stratum. So the steps
/// of a stratum in a group are met exactly in the mean.
class StepPredictor {
 public:
  /// `features` of all steps; must outlive the predictor.
  explicit StepPredictor(std::span<const StepFeatures> features);

  /// `groups` are disjoint and ascending; `cost` holds their steps one after another. InternalError if there is no
  /// group.
  std::vector<double> predict(std::span<const MeasuredGroup> groups, std::span<const double> cost) const;

  static constexpr std::size_t kColumns = 9;  ///< work counts in the model, the constant included
  using Row = std::array<double, kColumns>;

 private:
  Row fit(const std::vector<Row>& rows, std::span<const double> cost, std::span<const Stratum> strata) const;

  std::span<const StepFeatures> features_;
  // How much of each work count over the run is its own, not a combination of those before it; root mean square.
  Row own_all_{}, own_plain_{}, own_flush_{};
};

}  // namespace csdsim::host
