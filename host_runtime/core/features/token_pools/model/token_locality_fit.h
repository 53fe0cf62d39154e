// Fits the locality model of tokens to recordings.
#pragma once

#include "host_runtime/core/features/token_pools/model/token_locality.h"
#include "host_runtime/core/features/token_pools/model/token_recording.h"

namespace csdsim::host {

/// The constants with which the model overlaps as recorded 1, 8 and 64 steps before: `recent` is the recorded share,
/// the others minimise the sum of the squared errors. Fewer overlaps if there are not so many steps. UserError if all
/// or none of the important tokens are recent, or if there are fewer than 9 steps.
TokenLocalityParams fit_token_locality(const TokenRecording& recording);

/// What the model gives in the place of the recording: as many windows, layers, lists and steps, with as many important
/// tokens.
TokenRecording model_recording(const TokenRecording& recording, const TokenLocalityParams& params, std::uint64_t seed);

}  // namespace csdsim::host
