// The parameters of systems that may keep weights in host memory.
#pragma once

#include <string>
#include <vector>

#include "host_runtime/core/planner/layer_planner.h"
#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// `weights_on_host` and `weight_buffers`. The default of `weights` is the default of the system.
void describe_weights(ParamVisitor& v, WeightPlacement& weights);
void check_weights(config::Problems& problems, const WeightPlacement& weights);
std::vector<std::string> unused_weight_parameters(const WeightPlacement& weights);
/// Weights by place, buffers included.
std::vector<Resident> weight_residents(const ModelShape& model, const WeightPlacement& weights);

}  // namespace csdsim::host
