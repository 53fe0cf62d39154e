// Places the measured groups of a sampled run.
#pragma once

#include <vector>

#include "host_runtime/core/sampling/sampling_plan.h"

namespace csdsim::host {

/// Disjoint groups in ascending order, after the group of step 0 and its cooldown. Flush steps are placed first,
/// because they are rare. The steps of a stratum are divided into as many equal shares as it has places, and each place
/// is at a random step of its share: so the residuals of a fit show how far the other steps are from it. Each entry of
/// `settings.further` divides the steps anew, and its places are at steps that no earlier group takes.
std::vector<SampledGroup> place_groups(const std::vector<StepFeatures>& features, const SamplingSettings& settings);

}  // namespace csdsim::host
