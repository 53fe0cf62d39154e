// Rooflines of the processors of a platform, and the operators of a decode step on them.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario/scenario.h"

namespace csdsim::experiment {

/// A roofline model (Williams et al., CACM 2009) of a decode step of the whole batch in the middle of the generation,
/// all layers together, if it ran on one processor alone, with weights, K and V in that processor's memory: for the
/// drives, in flash behind all channels. Nothing is simulated.
///
///   batch, context                   sequences, tokens per sequence
///   machines.NAME                    flops_per_s, bytes_per_s (peaks), ridge_flops_per_byte
///   operators.NAME                   flops, bytes, flops_per_byte, seconds.MACHINE
///   decode_step_s.MACHINE            sum of the operators
///   decode_step_s.gpu_and_drives     attention in the drives, everything else on the GPU
///
/// Machines are gpu, host and drives; drives only where they have an attention engine. Operators are those of the
/// planners: projections (q, k, v), attention (dense), output_and_ffn, token_choice. Times of GPU and host include the
/// efficiency of their operators and kernel launches; the drives reach their peaks.
/// Several GPUs divide the batch, and each reads all weights. Precondition: a batch of equal lengths.
nlohmann::ordered_json decode_roofline(const scenario::Scenario& s);

}  // namespace csdsim::experiment
