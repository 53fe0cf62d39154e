#include "host_runtime/core/features/neurons/model/neuron_runs.h"

namespace csdsim::host {

std::vector<NeuronRun> neuron_runs(const RecordDirectory& directory, LayerId layer,
                                   std::span<const std::uint32_t> neurons) {
  const std::uint32_t matrices = directory.format().matrices;
  std::vector<NeuronRun> runs;
  for (std::size_t i = 0; i < neurons.size(); ++i) {
    const Bytes up = directory.address(layer, neurons[i], 0);
    if (i > 0 && neurons[i] == neurons[i - 1] + 1) {
      NeuronRun& last = runs.back();
      last.stride = up - directory.address(layer, neurons[i - 1], 0);  // the same for all neurons
      ++last.count;
      continue;
    }
    runs.push_back({.up = up,
                    .gate = matrices == 3 ? directory.address(layer, neurons[i], 1) : Bytes{},
                    .down = directory.address(layer, neurons[i], matrices - 1),
                    .count = 1,
                    .stride = {}});
  }
  return runs;
}

}  // namespace csdsim::host
