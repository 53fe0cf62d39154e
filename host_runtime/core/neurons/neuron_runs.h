// The rows of a list of neurons, as a drive is told to compute with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "base/units.h"
#include "host_runtime/core/neurons/record_directory.h"

namespace csdsim::host {

/// Neurons whose rows stand at regular distances in the block namespace of a drive: neuron i has its rows at
/// up + i * stride, and so on. Addresses count from the start of the namespace.
struct NeuronRun {
  Bytes up;
  Bytes gate;  ///< 0 without a gate
  Bytes down;
  std::uint32_t count = 0;
  Bytes stride;
  bool operator==(const NeuronRun&) const = default;
};

/// The runs of `neurons`, which ascend without repetition: one per group of consecutive neurons.
std::vector<NeuronRun> neuron_runs(const RecordDirectory& directory, LayerId layer,
                                   std::span<const std::uint32_t> neurons);

/// Neurons of all runs.
std::uint32_t neuron_count(std::span<const NeuronRun> runs);

/// Neurons [first, first + count) of a list.
std::vector<NeuronRun> neuron_slice(std::span<const NeuronRun> runs, std::uint32_t first, std::uint32_t count);

}  // namespace csdsim::host
