// The rows of a list of neurons, as a drive is told to compute with them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/address.h"
#include "host_runtime/core/features/neurons/model/record_directory.h"
#include "host_runtime/core/plan/neuron_run.h"

namespace csdsim::host {

/// The runs of `neurons`, which ascend without repetition: one per group of consecutive neurons.
std::vector<NeuronRun> neuron_runs(const RecordDirectory& directory, LayerId layer,
                                   std::span<const std::uint32_t> neurons);

}  // namespace csdsim::host
