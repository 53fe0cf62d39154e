// Weights that are in host memory or in files: their tensors, and their copies to the GPU.
#include <fmt/format.h>

#include "host_runtime/core/plan/layer_planner.h"

namespace csdsim::host {

std::vector<PlannedFile> LayerPlanner::files() const {
  std::vector<PlannedFile> files;
  for (std::uint32_t layer = 0; layer < in_.model.layers; ++layer) {
    if (const Bytes size = file_weights(LayerId{layer}).bytes; size.value > 0) {
      PlannedFile file{.drive = DriveIndex{files_of(layer).index}, .name = weight_file(LayerId{layer}), .size = size};
      // On the drive from the beginning, but first used by the prefill.
      if (!in_.span.prefill) file.written = {{{}, size}};
      files.push_back(std::move(file));
    }
    for (PlannedFile& file : layer_files(layer)) files.push_back(std::move(file));
  }
  return files;
}

std::uint32_t LayerPlanner::layers_ahead() const {
  return weights_.on_host.value() + weights_.in_files.value() > 0 ? weights_.buffers : 0;
}

SizedTensor LayerPlanner::host_kv_weights(LayerId layer) const {
  constexpr std::uint32_t kPart = 2;
  const Bytes both = weights_.kv_first ? in_.model.recompute_kv(1).weights : Bytes{};
  return {TensorName::kept(TensorClass::weights, layer, {}, {}, kPart), Bytes{weights_.on_host.floor_of(both.value)}};
}

SizedTensor LayerPlanner::host_weights(LayerId layer) const {
  const Bytes all{weights_.on_host.floor_of(in_.model.layer_weight_bytes().value)};
  return {TensorName::kept(TensorClass::weights, layer), all - host_kv_weights(layer).bytes};
}

SizedTensor LayerPlanner::file_weights(LayerId layer) const {
  constexpr std::uint32_t kPart = 1;  // those on the host are part 0
  return {TensorName::kept(TensorClass::weights, layer, {}, {}, kPart),
          Bytes{weights_.in_files.floor_of(in_.model.layer_weight_bytes().value)}};
}

std::vector<SizedTensor> LayerPlanner::moved_weights(LayerId layer) const {
  std::vector<SizedTensor> moved;
  for (const SizedTensor& weights : {host_kv_weights(layer), host_weights(layer), file_weights(layer)})
    if (weights.bytes.value > 0) moved.push_back(weights);
  return moved;
}

std::string LayerPlanner::weight_file(LayerId layer) { return fmt::format("weights of layer {}", layer.value); }

void LayerPlanner::copy_weights(OperationSink& sink, LayerId layer) {
  const SizedTensor of_kv = host_kv_weights(layer), on_host = host_weights(layer), in_file = file_weights(layer);
  for (std::uint32_t gpu = 0; gpu < gpus_.size(); ++gpu) {
    if (!works_in_step(gpu, 0)) continue;
    GpuState& state = gpus_[gpu];
    const OpTag tag{step_.phase, step_.number, layer, MiniBatch{gpu}};
    const Ids& freed = state.weights_freed;
    Ids room;
    if (freed.size() >= weights_.buffers) room.push_back(freed[freed.size() - weights_.buffers]);
    const auto copy = [&](const SizedTensor& weights, const Ids& before, bool keep_copy) {
      return transfer(sink, ResourceKind::host_to_gpu, tag, LinkPayload::weights, before, {weights}, keep_copy);
    };
    state.weights_copied.clear();
    if (of_kv.bytes.value > 0) state.weights_copied.push_back(copy(of_kv, room, true));
    state.kv_weights_copied = state.weights_copied;
    if (on_host.bytes.value > 0) state.weights_copied.push_back(copy(on_host, room, true));
    if (in_file.bytes.value > 0) {
      // What has been read waits in host memory for the link, and for nothing else: the GPU has room for it already.
      FileWork work{.file = weight_file(layer), .ranges = {{{}, in_file.bytes}}, .payload = LinkPayload::weights};
      const OperationId read = sink.add(OpKind::read_file, files_of(layer.value), tag, std::move(work), room,
                                        {.reads = {in_file.name}, .writes = {in_file}});
      state.weights_copied.push_back(copy(in_file, {read}, false));
    }
  }
}

}  // namespace csdsim::host
