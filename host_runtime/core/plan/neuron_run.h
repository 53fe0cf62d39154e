// Neurons at regular distances in the block namespace of a drive, as a command to the drive names them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/units.h"

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

/// Neurons of all runs.
std::uint32_t neuron_count(std::span<const NeuronRun> runs);

/// Neurons [first, first + count) of a list.
std::vector<NeuronRun> neuron_slice(std::span<const NeuronRun> runs, std::uint32_t first, std::uint32_t count);

}  // namespace csdsim::host
