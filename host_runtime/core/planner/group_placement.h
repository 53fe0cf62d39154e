// Places the measured groups of a sampled run.
#pragma once

#include <vector>

#include "host_runtime/core/planner/sampling_plan.h"

namespace csdsim::host {

/// Disjoint groups in ascending order, after the one of step 0 with its cooldown. Flushes come first, being rare; the
/// places of a stratum spread over its steps. Plain steps stand where the batch's tails have their mean length: a
/// cost that grows with the context and one that grows with the full pages then have the same mean there.
std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const KvGrouping& grouping,
                                       const SamplingSettings& settings);

}  // namespace csdsim::host
