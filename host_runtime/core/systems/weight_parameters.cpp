#include "host_runtime/core/systems/weight_parameters.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/quantity.h"

namespace csdsim::host {

void describe_weights(ParamVisitor& v, WeightPlacement& weights) {
  v.param(
      "weights_on_host", weights.on_host, {Ratio{0, 1}, Ratio{1, 1}},
      "Share of each decoder layer's weights that is in host memory and is copied to the GPU in every step; what is "
      "nowhere else is in GPU memory, and so are embeddings.",
      assumed("weights stay where they are read most"));
  v.param("weight_buffers", weights.buffers, {2, 1024},
          "Layers of weights from outside its memory that the GPU holds at a time.", assumed("double buffering"));
}

void describe_weights_in_files(ParamVisitor& v, WeightPlacement& weights) {
  v.param(
      "weights_in_files", weights.in_files, {Ratio{0, 1}, Ratio{1, 1}},
      "Share of each decoder layer's weights that is in files on the drives; it is read into host memory and copied "
      "to the GPU in every step. Timing runs only.",
      paper("FlexGen 4.1: weights on GPU, CPU and disk; the default keeps none on disk, as InstInfer V-A"));
}

void check_weights(config::Problems& problems, const SystemContext& context, const WeightPlacement& weights) {
  for (const std::string& unused : unused_weight_parameters(weights))
    problems.refuse_unused("system." + unused, "system.weights_on_host", "all weights stay in GPU memory");
  problems.require(weights.on_host.value() + weights.in_files.value() <= 1 + 1e-9,
                   {"system.weights_in_files", "system.weights_on_host"},
                   fmt::format("system.weights_in_files: {} in files and {} on the host are more than all weights",
                               format_quantity(weights.in_files), format_quantity(weights.on_host)));
  problems.require(context.gpus <= 1 || weights.in_files == Ratio{0, 1},
                   {"system.weights_in_files", "platform.gpu.count"},
                   fmt::format("system.weights_in_files: weights in files are read for one GPU, not for {}; "
                               "weights_on_host serves several",
                               context.gpus));
  problems.require(!context.carried || weights.in_files == Ratio{0, 1}, {"system.weights_in_files", "simulation.data"},
                   "system.weights_in_files: runs that carry data compute with the weights of the checkpoint, whose "
                   "bytes are in no file of a drive: use simulation.data: timing");
}

std::vector<std::string> unused_weight_parameters(const WeightPlacement& weights) {
  if (weights.on_host == Ratio{0, 1} && weights.in_files == Ratio{0, 1}) return {"weight_buffers"};
  return {};
}

bool all_weights_on_host(const WeightPlacement& weights) {
  if (weights.on_host == Ratio{0, 1} || weights.on_host == Ratio{1, 1}) return weights.on_host == Ratio{1, 1};
  throw UserError(
      fmt::format("system.weights_on_host: {} of the weights: on the streams of a GPU a layer is on the host "
                  "as a whole or not at all: 0 or 1",
                  format_quantity(weights.on_host)));
}

std::vector<Resident> weight_residents(const ModelShape& model, const WeightPlacement& weights) {
  const std::uint64_t of_layer = model.layer_weight_bytes().value;
  const Bytes on_host{weights.on_host.floor_of(of_layer)};
  // check_weights() refuses shares beyond the whole; residents are counted after it nevertheless.
  const Bytes in_file{std::min(weights.in_files.floor_of(of_layer), of_layer - on_host.value)};
  const Bytes moved = on_host + in_file;
  const std::uint32_t buffers = std::min(weights.buffers, model.layers);
  std::vector<Resident> residents{{Place::gpu(), "weights", model.weight_bytes() - moved * model.layers}};
  const auto add = [&](Place home, const char* what, Bytes bytes, bool read_only = false) {
    if (bytes.value > 0) residents.push_back({home, what, bytes, read_only});
  };
  add(Place::gpu(), "copies of weights", moved * buffers);
  add(Place::host(), "weights", on_host * model.layers);
  add(Place::host(), "weights on their way from files", in_file * buffers);
  add(Place::drive_blocks(), "weights", in_file * model.layers, true);
  return residents;
}

}  // namespace csdsim::host
