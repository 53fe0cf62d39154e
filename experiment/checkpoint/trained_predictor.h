// The trained predictor of neurons beside the checkpoint of a run.
#pragma once

#include <memory>

#include "host_runtime/core/features/neurons/model/neuron_predictor.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Opens `predictor.safetensors` beside the checkpoint of a run that carries data. UserError as open_predictor(): for
/// one of another checkpoint or FATReLU threshold, too.
std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario);

}  // namespace csdsim::experiment
