#include "host_runtime/sysc/memory_capacities.h"

#include <map>
#include <utility>

namespace csdsim::host {

void set_memory_capacities(TensorLedger& tensors, const platform::PlatformParams& platform) {
  for (std::uint32_t gpu = 0; gpu < platform.gpus; ++gpu)
    tensors.set_capacity(Place::gpu(gpu), platform.gpu_memory, "platform.gpu.memory");
  tensors.set_capacity(Place::host(), platform.host_memory, "platform.host.memory");
}

void place_layers_left_out(TensorLedger& tensors, const Planner& whole, const Planner& part, std::uint32_t layers) {
  std::map<std::pair<Place, TensorClass>, Bytes> left_out;
  for (const PlacedTensor& tensor : whole.resident()) left_out[{tensor.place, tensor.name.what}] += tensor.bytes;
  for (const PlacedTensor& tensor : part.resident()) {
    Bytes& sum = left_out[{tensor.place, tensor.name.what}];
    sum = sum > tensor.bytes ? sum - tensor.bytes : Bytes{};
  }
  // The layer id is one past the last, so that no tensor of a plan has this name.
  for (const auto& [at, bytes] : left_out)
    tensors.place({TensorName::kept(at.second, LayerId{layers}), at.first, bytes});
}

}  // namespace csdsim::host
