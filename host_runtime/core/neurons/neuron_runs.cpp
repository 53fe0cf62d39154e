#include "host_runtime/core/neurons/neuron_runs.h"

#include <algorithm>

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

std::uint32_t neuron_count(std::span<const NeuronRun> runs) {
  std::uint32_t count = 0;
  for (const NeuronRun& run : runs) count += run.count;
  return count;
}

std::vector<NeuronRun> neuron_slice(std::span<const NeuronRun> runs, std::uint32_t first, std::uint32_t count) {
  std::vector<NeuronRun> slice;
  for (const NeuronRun& run : runs) {
    const std::uint32_t skipped = std::min(first, run.count);
    const std::uint32_t taken = std::min(count, run.count - skipped);
    first -= skipped;
    count -= taken;
    if (taken == 0) continue;
    const Bytes offset = run.stride * skipped;
    slice.push_back({.up = run.up + offset,
                     .gate = run.gate.value == 0 ? Bytes{} : run.gate + offset,
                     .down = run.down + offset,
                     .count = taken,
                     .stride = run.stride});
  }
  return slice;
}

}  // namespace csdsim::host
