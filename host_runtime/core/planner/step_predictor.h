// Predicts the cost of every decode step from the few that were measured.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/planner/step_features.h"

namespace csdsim::host {

/// Consecutive decode steps that were measured together.
struct MeasuredGroup {
  std::uint32_t first = 0;
  std::uint32_t steps = 1;
};

/// Cost of every step, linear in the measured costs. A least-squares model in the work counts (constant, flushed and
/// windowed tokens, flushes now and before) carries the shape; what it misses is interpolated over the steps, first for
/// all from the plain ones, then within each stratum. So the steps of a stratum in a group are met exactly in the mean.
///
/// `groups` are disjoint and ascending; `cost` holds their steps one after another. InternalError if there is no group.
std::vector<double> predict_steps(std::span<const StepFeatures> features, std::span<const MeasuredGroup> groups,
                                  std::span<const double> cost);

}  // namespace csdsim::host
