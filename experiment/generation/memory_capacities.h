// What GPU and host memory hold at most, in generation runs.
#pragma once

#include <cstdint>

#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/planner/tensor_ledger.h"
#include "platform/platform.h"

namespace csdsim::experiment {

/// Tensors of a plan that exceed GPU or host memory are a UserError from now on.
void set_memory_capacities(host::TensorLedger& tensors, const platform::PlatformParams& platform);

/// A plan over some layers of a model states what these keep. This counts what the others keep, which a sampled run
/// leaves out: the residents of `whole`, a plan over all `layers`, beyond those of `part`.
void place_layers_left_out(host::TensorLedger& tensors, const host::Planner& whole, const host::Planner& part,
                           std::uint32_t layers);

}  // namespace csdsim::experiment
