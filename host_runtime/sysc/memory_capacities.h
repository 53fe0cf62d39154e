// Limits of GPU and host memory in generation runs.
#pragma once

#include <cstdint>

#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/tensor_ledger.h"
#include "platform/platform_params.h"

namespace csdsim::host {

/// Sets the capacities of GPU and host memory. From then on, tensors that exceed them cause a UserError.
void set_memory_capacities(TensorLedger& tensors, const platform::PlatformParams& platform);

/// A sampled run executes `part`, a plan over some of the model's layers, but the memory also holds the resident
/// tensors of the other layers. This adds them to the ledger: the difference between the residents of `whole`, the plan
/// over all `layers`, and those of `part`.
void place_layers_left_out(TensorLedger& tensors, const Planner& whole, const Planner& part, std::uint32_t layers);

}  // namespace csdsim::host
