// From logits to a token. Random numbers are a function of (seed, stream, step), so a token does not depend on the rest
// of the batch, and the same seed gives the same tokens on every machine.
#pragma once

#include <cstdint>
#include <span>

#include "host_runtime/core/model/model_config.h"

namespace csdsim::host {

struct SamplingOptions {
  float temperature = 0;    ///< 0: greedy; otherwise logits are divided by it
  std::uint32_t top_k = 0;  ///< keep the k most likely tokens; 0: all
  float top_p = 1;          ///< keep the most likely tokens until their mass reaches p; 1: all
  std::uint64_t seed = 0;
};

/// UserError naming the option that is out of range (temperature finite and >= 0, 0 < top_p <= 1).
void check(const SamplingOptions& options);

/// Uniform in [0, 1) with 53 bits: splitmix64 finalisers over the three numbers.
double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t step);

/// The token with the largest logit; of equals the lower id. UserError if a logit is NaN or the largest one infinite:
/// the checkpoint is broken.
TokenId greedy(std::span<const float> logits);

/// The next token. `stream` tells sequences apart, `step` counts the tokens of one. Equal logits: the lower id first.
/// Errors are those of greedy(); a token with -inf is never chosen.
TokenId sample(std::span<const float> logits, const SamplingOptions& options, std::uint64_t stream, std::uint64_t step);

}  // namespace csdsim::host
