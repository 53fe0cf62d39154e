// The parameters of systems that may keep weights in host memory and in files.
#pragma once

#include <string>
#include <vector>

#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/system.h"

namespace csdsim::host {

/// `weights_on_host` and `weight_buffers`. The default of `weights` is the default of the system.
void describe_weights(ParamVisitor& v, WeightPlacement& weights);
/// `weights_in_files`, for systems that reach files through the file system.
void describe_weights_in_files(ParamVisitor& v, WeightPlacement& weights);
void check_weights(config::Problems& problems, const SystemContext& context, const WeightPlacement& weights);
std::vector<std::string> unused_weight_parameters(const WeightPlacement& weights);
/// True if all weights of the layers are on the host. UserError if a part of them is, which a real run cannot have.
bool all_weights_on_host(const WeightPlacement& weights);
/// Weights by place, buffers included: of layers that are read from files, the host holds as many as the GPU.
std::vector<Resident> weight_residents(const ModelShape& model, const WeightPlacement& weights);

}  // namespace csdsim::host
