// Places the measured groups of a sampled run.
#pragma once

#include <vector>

#include "host_runtime/core/sampling/sampling_plan.h"

namespace csdsim::host {

/// Disjoint groups in ascending order, after the group of step 0 and its cooldown. Flush steps are placed first,
/// because they are rare. The places of a stratum are spread over its steps. Plain places are steps at which the tails
/// of the batch have their mean length, so that costs that grow with the context and costs that grow with the number of
/// full pages both have their mean there.
std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const KvGrouping& grouping,
                                       const SamplingSettings& settings);

}  // namespace csdsim::host
