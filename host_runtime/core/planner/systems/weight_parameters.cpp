#include "host_runtime/core/planner/systems/weight_parameters.h"

#include <algorithm>

namespace csdsim::host {

void describe_weights(ParamVisitor& v, WeightPlacement& weights) {
  v.param(
      "weights_on_host", weights.on_host, {Ratio{0, 1}, Ratio{1, 1}},
      "Share of each decoder layer's weights that is in host memory and is copied to the GPU in every step; the rest "
      "is in GPU memory, and so are embeddings.",
      assumed("weights stay where they are read most"));
  v.param("weight_buffers", weights.buffers, {2, 1024}, "Layers of these weights that the GPU holds at a time.",
          assumed("double buffering"));
}

void check_weights(config::Problems& problems, const WeightPlacement& weights) {
  for (const std::string& unused : unused_weight_parameters(weights))
    problems.refuse_unused("system." + unused, "system.weights_on_host", "all weights stay in GPU memory");
}

std::vector<std::string> unused_weight_parameters(const WeightPlacement& weights) {
  if (weights.on_host == Ratio{0, 1}) return {"weight_buffers"};
  return {};
}

std::vector<Resident> weight_residents(const ModelShape& model, const WeightPlacement& weights) {
  const Bytes of_layer{weights.on_host.floor_of(model.layer_weight_bytes().value)};
  const Bytes on_host = of_layer * model.layers;
  std::vector<Resident> residents{{Home::gpu, "weights", model.weight_bytes() - on_host}};
  if (on_host.value == 0) return residents;
  residents.push_back({Home::gpu, "copies of weights", of_layer * std::min(weights.buffers, model.layers)});
  residents.push_back({Home::host, "weights", on_host});
  return residents;
}

}  // namespace csdsim::host
