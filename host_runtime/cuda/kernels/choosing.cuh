// Kernels that extend the caches of a batch and choose the best tokens.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

namespace csdsim::host::cuda {

/// Copies new K and V rows to the caches. Grid (new tokens, sequences).
static __global__ void extend_cache_kernel(SequenceView batch, const __half* k, const __half* v, CacheShape shape,
                                           __half* keys, __half* values) {
  const std::uint32_t sequence = blockIdx.y, token = batch.firsts[sequence] + blockIdx.x;
  if (token >= batch.lengths[sequence]) return;
  const std::size_t row = (std::size_t{batch.rows[sequence]} + blockIdx.x) * shape.kv_heads * shape.d;
  for (std::uint32_t i = threadIdx.x; i < shape.kv_heads * shape.d; i += blockDim.x) {
    const std::size_t head = std::size_t{batch.slots[sequence]} * shape.kv_heads + i / shape.d;
    const std::size_t to = (head * shape.capacity + token) * shape.d + i % shape.d;
    keys[to] = k[row + i];
    values[to] = v[row + i];
  }
}

/// Divides the tokens of a list into the newest ones and those chosen by score.
struct ListCounts {
  std::uint32_t length, count, newest;

  __device__ __forceinline__ ListCounts(const SequenceView& batch, std::uint32_t list, std::uint32_t lists,
                                        const std::uint32_t* all_newest, const std::uint32_t* counts)
      : length(batch.lengths[list / lists]),
        count(min(counts[list], length)),
        newest(min(all_newest[list / lists], count)) {}
};

inline constexpr std::uint32_t kSelectThreads = 256;

/// Finds the lowest chosen score, then takes all tokens above it and the first tokens with that score, in ascending
/// order. One block per list; shared memory: one value per thread plus one.
static __global__ void select_best_kernel(SequenceView batch, std::uint32_t lists, std::uint32_t stride,
                                          const std::uint32_t* newest, const std::uint32_t* counts,
                                          const float* all_scores, std::uint32_t* all_chosen) {
  const ListCounts list(batch, blockIdx.x, lists, newest, counts);
  const float* const scores = all_scores + std::size_t{blockIdx.x} * stride;
  std::uint32_t* const chosen = all_chosen + std::size_t{blockIdx.x} * stride;
  std::uint32_t* const scratch = block_memory<std::uint32_t>();
  const std::uint32_t candidates = list.length - list.newest, best = list.count - list.newest;
  for (std::uint32_t i = threadIdx.x; i < list.newest; i += blockDim.x) chosen[best + i] = candidates + i;
  if (best == 0) return;
  const auto bits = [&](std::uint32_t i) { return ordered_bits(scores[i]); };
  const std::uint32_t least = reached(
      candidates, best, [&](std::uint32_t i) { return scores[i]; }, [](std::uint32_t) { return 1u; }, scratch);
  std::uint32_t own = 0;
  for (std::uint32_t i = threadIdx.x; i < candidates; i += blockDim.x) own += bits(i) > least;
  const std::uint32_t equals = best - block_count(own, scratch);  // tokens taken that have the lowest score, at least 1
  std::uint32_t* const last = scratch + blockDim.x;
  compact(
      candidates, [&](std::uint32_t i) { return bits(i) == least; },
      [&](std::uint32_t rank, std::uint32_t i) {
        if (rank + 1 == equals) *last = i;
      },
      scratch);
  __syncthreads();
  compact(
      candidates, [&](std::uint32_t i) { return bits(i) > least || (bits(i) == least && i <= *last); },
      [&](std::uint32_t rank, std::uint32_t i) { chosen[rank] = i; }, scratch);
}

/// Chooses counts[sequence] tokens: the first `sinks`, and the newest for the rest, at least one. Grid (sequences).
static __global__ void choose_window_kernel(SequenceView batch, std::uint32_t sinks, std::uint32_t stride,
                                            const std::uint32_t* counts, std::uint32_t* chosen) {
  const std::uint32_t length = batch.lengths[blockIdx.x], count = counts[blockIdx.x];
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    chosen[std::size_t{blockIdx.x} * stride + i] = i < min(sinks, count - 1) ? i : length - count + i;
  }
}

/// Maximum and sum of the softmax of each head's scores. Grid (heads, sequences).
static __global__ void softmax_scales_kernel(const float* scores, std::uint32_t stride, const std::uint32_t* counts,
                                             std::uint32_t lists, std::uint32_t group, float2* softmax) {
  const std::uint32_t head = blockIdx.x, sequence = blockIdx.y;
  const std::size_t row = std::size_t{sequence} * gridDim.x + head;
  const std::uint32_t count = counts[std::size_t{sequence} * lists + (lists == 1 ? 0 : head / group)];
  float2 own{-FLT_MAX, 0};
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) own.x = fmaxf(own.x, scores[row * stride + i]);
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) own.y += expf(scores[row * stride + i] - own.x);
  own = block_softmax(own, block_memory<float2>());
  if (threadIdx.x == 0) softmax[row] = own;
}

}  // namespace csdsim::host::cuda
