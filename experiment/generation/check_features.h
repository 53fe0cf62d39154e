// Checks that the features of a run have what they need.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Each feature checks the run and its platform and, if the run carries data, the files beside its checkpoint.
void check_features(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
