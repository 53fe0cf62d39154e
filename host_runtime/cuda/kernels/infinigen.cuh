// InfiniGen (arXiv 2406.19707): scores from a few columns of skewed queries and keys.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

namespace csdsim::host::cuda {

__device__ __forceinline__ float dot_by_warp(const float* a, const __half* b, std::uint32_t d) {
  float sum = 0;
  for (std::uint32_t i = threadIdx.x % 32; i < d; i += 32) sum += a[i] * to_float(b[i]);
  return warp_sum(sum);
}

/// Projects new keys. Grid (blocks of new tokens, kv heads, sequences), one warp per token.
static __global__ void project_keys_kernel(SequenceView batch, CacheShape shape, const __half* keys, const float* skew,
                                           std::uint32_t columns, float* projected) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = place.first + blockIdx.x * kListWarps + threadIdx.x / 32;
  if (token >= place.length) return;  // uniform over the warp
  const std::size_t row = place.head * shape.capacity + token;
  for (std::uint32_t c = 0; c < columns; ++c) {
    const float value = dot_by_warp(skew + (place.head * columns + c) * shape.d, keys + row * shape.d, shape.d);
    if (threadIdx.x % 32 == 0) projected[row * columns + c] = value;
  }
}

/// Projects the queries of a group on the columns and sums them: partial [sequences][kv heads][columns]. Grid (kv
/// heads, sequences).
static __global__ void project_queries_kernel(SequenceView batch, CacheShape shape, SpeculationArguments s,
                                              float* partial) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t group = shape.heads / shape.kv_heads;
  if (s.dense[blockIdx.y] != 0) return;  // it has no columns yet
  for (std::uint32_t c = threadIdx.x / 32; c < s.columns; c += kListWarps) {
    float sum = 0;
    for (std::uint32_t g = 0; g < group; ++g) {
      sum += dot_by_warp(s.skew + (place.head * s.columns + c) * shape.d, s.q + (place.head * group + g) * shape.d,
                         shape.d);
    }
    if (threadIdx.x % 32 == 0) partial[place.list * s.columns + c] = sum;
  }
}

/// Computes scores, and the number of scores within the threshold of the largest. Grid (kv heads, sequences).
static __global__ void speculated_scores_kernel(SequenceView batch, CacheShape shape, SpeculationArguments s,
                                                const float* partial, float scale, float* scores,
                                                std::uint32_t* within) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const bool dense = s.dense[blockIdx.y] != 0;
  float* const to = scores + place.list * s.stride;
  float top = -FLT_MAX;
  for (std::uint32_t j = threadIdx.x; j + 1 < place.length; j += blockDim.x) {
    float sum = 0;
    for (std::uint32_t c = 0; c < s.columns && !dense; ++c) {
      sum += partial[place.list * s.columns + c] * s.projected[(place.head * shape.capacity + j) * s.columns + c];
    }
    to[j] = sum * scale;
    top = fmaxf(top, to[j]);
  }
  const float least = block_softmax(float2{top, 0}, block_memory<float2>()).x - s.threshold;
  std::uint32_t own = 0;
  for (std::uint32_t j = threadIdx.x; j + 1 < place.length; j += blockDim.x) own += to[j] > least;
  const std::uint32_t all = block_count(own, block_memory<std::uint32_t>());
  if (threadIdx.x == 0) within[place.list] = all;
}

/// Computes the number of tokens to fetch. Grid (sequences), one thread per head.
static __global__ void fetch_counts_kernel(SequenceView batch, CacheShape shape, SpeculationArguments s,
                                           const std::uint32_t* within, std::uint32_t* counts) {
  const std::uint32_t sequence = blockIdx.x, length = batch.lengths[sequence];
  for (std::uint32_t head = threadIdx.x; head < shape.kv_heads; head += blockDim.x) {
    std::uint32_t all = 0;
    for (std::uint32_t i = 0; i < shape.kv_heads; ++i) all += within[std::size_t{sequence} * shape.kv_heads + i];
    const std::uint32_t fetched = min(all / shape.kv_heads, s.budgets[sequence] - 1) + 1;
    counts[std::size_t{sequence} * shape.kv_heads + head] = s.dense[sequence] != 0 ? length : fetched;
  }
}

}  // namespace csdsim::host::cuda
