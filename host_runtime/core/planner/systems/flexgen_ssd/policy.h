// The policy of FlexGen (arXiv 2303.06865, section 4): batch shape, and the place of weights, KV cache and activations.
#pragma once

#include <cstdint>

namespace csdsim::host {

/// Shares of one kind of data in whole percent; the rest is on disk. Precondition of disk(): gpu + host <= 100.
struct TierSplit {
  std::uint32_t gpu = 0;
  std::uint32_t host = 0;

  constexpr std::uint32_t disk() const { return 100 - gpu - host; }
  friend constexpr bool operator==(const TierSplit&, const TierSplit&) = default;
};

/// A block of gpu_batch_size x num_gpu_batches sequences passes through the model layer by layer. The weights of a
/// layer are loaded once per block and token; the GPU computes one GPU batch at a time. The defaults are those that
/// InstInfer (section V-A) uses: weights and activations in GPU memory, K and V on disk.
struct FlexGenPolicy {
  std::uint32_t gpu_batch_size = 1;
  std::uint32_t num_gpu_batches = 1;
  TierSplit weights{.gpu = 100, .host = 0};
  TierSplit cache{.gpu = 0, .host = 0};
  TierSplit activations{.gpu = 100, .host = 0};
  bool overlap = true;             ///< transfers overlap with each other and with computation
  bool cpu_cache_compute = false;  ///< in decode, the host attends to the K and V that are not in GPU memory

  /// Sequences in a block.
  constexpr std::uint64_t block() const { return std::uint64_t{gpu_batch_size} * num_gpu_batches; }
  /// Throws UserError that names the field.
  void validate() const;

  friend constexpr bool operator==(const FlexGenPolicy&, const FlexGenPolicy&) = default;
};

}  // namespace csdsim::host
