// What the features of a run need: of the drives and, in a run that carries data, beside its checkpoint.
#pragma once

#include <memory>

#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/features/neurons/model/neuron_predictor.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Opens `predictor.safetensors` beside the checkpoint of a run that carries data. UserError as open_predictor(): for
/// one of another checkpoint or FATReLU threshold, too.
std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario);

/// The features of a run fit its platform, and find what they need beside its checkpoint.
void check_features(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
