// The frequencies of rotary positions.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

/// Radians per position by which pair i of a head turns: theta^(-2i / head_dim), head_dim / 2 values, scaled where the
/// model says so for a sequence of `context` tokens (0: a short one). Computed in fp32 in the order of the reference
/// implementation (Hugging Face transformers, modeling_rope_utils), because weights were trained with those values.
std::vector<float> inverse_frequencies(const RotaryPositions& rotary, std::uint32_t head_dim,
                                       std::uint32_t context = 0);

}  // namespace csdsim::host
