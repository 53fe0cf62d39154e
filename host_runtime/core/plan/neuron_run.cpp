#include "host_runtime/core/plan/neuron_run.h"

#include <algorithm>

namespace csdsim::host {

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
