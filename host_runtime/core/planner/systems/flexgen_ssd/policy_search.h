// The policy search of FlexGen (arXiv 2303.06865, section 4.3): batch shapes are enumerated; for each, the best
// percentages are the solution of a linear program.
#pragma once

#include <cstdint>
#include <optional>

#include "host_runtime/core/planner/systems/flexgen_ssd/cost_model.h"

namespace csdsim::host {

/// What the search may choose. Fields without a value are free.
struct FlexGenSearch {
  bool overlap = true;
  std::optional<bool> cpu_cache_compute = {};
  std::optional<std::uint32_t> gpu_batch_size = {};
  std::optional<TierSplit> weights = {};
  std::optional<TierSplit> cache = {};
  std::optional<TierSplit> activations = {};
  bool activations_on_disk = true;  ///< the released search does not allow this
  bool weights_on_disk = true;
};

/// A policy and its costs.
struct FlexGenChoice {
  FlexGenPolicy policy;
  double seconds = 0;            ///< for one block
  double tokens_per_second = 0;  ///< generated
  FlexGenMemory memory = {};     ///< peak
};

/// The fastest policy for a block of exactly `batch` sequences. GPU batch sizes are the divisors of `batch`.
/// Percentages are the whole ones of least latency, exact within a relative 1e-6 (FlexGen solves for real shares and
/// leaves the rounding to the user). Of equal latencies (relative 1e-6), the larger GPU batch size wins, then attention
/// on the GPU, then in this order the larger share of weights, cache and activations in GPU memory, then of weights,
/// cache and activations in host memory.
///
/// Throws UserError for a batch of 0, a gpu_batch_size that does not divide it, and invalid splits. If nothing fits,
/// throws UserError that names the memories that are too small, by how much, and the largest batch that fits.
FlexGenChoice best_flexgen_policy(const FlexGenCostModel& model, std::uint32_t batch, const FlexGenSearch& search = {});

/// The policy of most tokens per second among all blocks of at most `largest_block` sequences. GPU batch sizes are 1,
/// 2, 3, 4 and the powers of two beyond, as in the released code, with every number of GPU batches. Ties as above; of
/// equal GPU batch sizes the fewest GPU batches win. Throws as above, and for a gpu_batch_size beyond
/// `largest_block`.
FlexGenChoice best_flexgen_block(const FlexGenCostModel& model, std::uint32_t largest_block,
                                 const FlexGenSearch& search = {});

}  // namespace csdsim::host
