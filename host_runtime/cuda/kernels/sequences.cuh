// Shared code of the kernels of the attention methods: the sequences of a batch, sums over a block, the k-th largest.
#pragma once

#include <cfloat>

#include "host_runtime/cuda/attention/choosing.h"
#include "host_runtime/cuda/kernels/device.cuh"

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kListThreads = 128;  ///< default for the kernels here
inline constexpr std::uint32_t kListWarps = kListThreads / 32;

/// One KV head of one sequence of a batch.
struct HeadPlace {
  std::uint32_t first, length;
  std::size_t list;  ///< index in [sequences][kv heads]
  std::size_t head;  ///< index in [slots][kv heads]

  __device__ __forceinline__ HeadPlace(const SequenceView& batch, std::uint32_t sequence, std::uint32_t kv_head,
                                       std::uint32_t kv_heads)
      : first(batch.firsts[sequence]),
        length(batch.lengths[sequence]),
        list(std::size_t{sequence} * kv_heads + kv_head),
        head(std::size_t{batch.slots[sequence]} * kv_heads + kv_head) {}
};

__device__ __forceinline__ float dot_by_warp(const __half* a, const __half* b, std::uint32_t d) {
  float sum = 0;
  for (std::uint32_t i = threadIdx.x % 32; i < d; i += 32) sum += to_float(a[i]) * to_float(b[i]);
  return warp_sum(sum);
}

/// Returns the sum over the block to every thread. `scratch` holds one value per warp.
__device__ __forceinline__ std::uint32_t block_count(std::uint32_t value, std::uint32_t* scratch) {
  for (int lane = 16; lane > 0; lane /= 2) value += shuffle_xor(value, lane);
  __syncthreads();  // all threads have read the previous contents
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  std::uint32_t sum = 0;
  for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += scratch[warp];
  return sum;
}

/// Returns the maximum over the block, and the sum of exponentials relative to it, to every thread.
__device__ __forceinline__ float2 block_softmax(float2 own, float2* scratch) {
  const auto merge = [](float2 a, float2 b) {
    const float top = fmaxf(a.x, b.x);
    return float2{top, a.y * expf(a.x - top) + b.y * expf(b.x - top)};
  };
  for (int lane = 16; lane > 0; lane /= 2) own = merge(own, float2{shuffle_xor(own.x, lane), shuffle_xor(own.y, lane)});
  __syncthreads();
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = own;
  __syncthreads();
  float2 all = scratch[0];
  for (unsigned warp = 1; warp < blockDim.x / 32; ++warp) all = merge(all, scratch[warp]);
  return all;
}

/// Maps a float to an unsigned number with the same order; NaN is smallest.
__device__ __forceinline__ std::uint32_t ordered_bits(float value) {
  if (value != value) return 0;
  if (value == 0) value = 0;  // -0 is equal
  std::uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

/// For n items, each with a score and a number of tokens: returns the ordered bits of the score at which the items from
/// the top contain `count` (at least 1) tokens; 0 if there are fewer tokens. The whole block must call it.
template <class Score, class Tokens>
__device__ __forceinline__ std::uint32_t reached(std::uint32_t n, std::uint32_t count, Score score, Tokens tokens,
                                                 std::uint32_t* scratch) {
  std::uint32_t found = 0;
  for (std::uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    const std::uint32_t least = found | bit;
    std::uint32_t own = 0;
    for (std::uint32_t i = threadIdx.x; i < n; i += blockDim.x) {
      const std::uint32_t here = tokens(i);
      if (here > 0 && ordered_bits(score(i)) >= least) own += here;
    }
    if (block_count(own, scratch) >= count) found = least;
  }
  return found;
}

/// Calls store(rank, i) for each i < n for which `taken` holds, with ranks ascending from 0; returns their number. The
/// whole block must call it; `scratch` holds one value per thread.
template <class Taken, class Store>
__device__ __forceinline__ std::uint32_t compact(std::uint32_t n, Taken taken, Store store, std::uint32_t* scratch) {
  const std::uint32_t share = (n + blockDim.x - 1) / blockDim.x;
  const std::uint32_t begin = min(threadIdx.x * share, n), end = min(begin + share, n);
  std::uint32_t own = 0;
  for (std::uint32_t i = begin; i < end; ++i) own += taken(i);
  __syncthreads();
  scratch[threadIdx.x] = own;
  __syncthreads();
  std::uint32_t rank = 0, total = 0;
  for (unsigned thread = 0; thread < blockDim.x; ++thread) {
    if (thread == threadIdx.x) rank = total;
    total += scratch[thread];
  }
  for (std::uint32_t i = begin; i < end; ++i) {
    if (taken(i)) store(rank++, i);
  }
  return total;
}

}  // namespace csdsim::host::cuda
