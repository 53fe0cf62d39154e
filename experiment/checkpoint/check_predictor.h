// The trained predictor beside the checkpoint of a run.
#pragma once

#include <memory>

#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/neurons/neuron_predictor.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Opens `predictor.safetensors` beside the checkpoint of a run that carries data. UserError as open_predictor(): for
/// one of another checkpoint or FATReLU threshold, too.
std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario);

/// The features of a run that carries data find what they need beside its checkpoint.
void check_checkpoint(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
