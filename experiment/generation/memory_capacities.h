// Limits of GPU and host memory in generation runs.
#pragma once

#include <cstdint>

#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/planner/tensor_ledger.h"
#include "platform/platform.h"

namespace csdsim::experiment {

/// Sets the capacities of GPU and host memory. From then on, tensors that exceed them cause a UserError.
void set_memory_capacities(host::TensorLedger& tensors, const platform::PlatformParams& platform);

/// A sampled run executes `part`, a plan over some of the model's layers, but the memory also holds the resident
/// tensors of the other layers. This adds them to the ledger: the difference between the residents of `whole`, the plan
/// over all `layers`, and those of `part`.
void place_layers_left_out(host::TensorLedger& tensors, const host::Planner& whole, const host::Planner& part,
                           std::uint32_t layers);

}  // namespace csdsim::experiment
