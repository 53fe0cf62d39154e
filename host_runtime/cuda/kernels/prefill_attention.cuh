// Dense causal attention over whole sequences: FlashAttention-2 (arXiv 2307.08691) on mma.sync, and a plain kernel for
// shapes and GPUs that it does not support.
#pragma once

#include "host_runtime/cuda/kernels/decode_attention.cuh"

namespace csdsim::host::cuda {

/// q and out are [rows][heads * d], k and v [rows][kv_heads * d], with row strides *_stride in elements. Sequence i has
/// rows starts[i] to starts[i + 1].
template <class T>
struct PrefillArguments {
  const T* q;
  const T* k;
  const T* v;
  T* out;
  const std::uint32_t* starts;
  std::size_t q_stride;
  std::size_t kv_stride;
  std::size_t out_stride;
  std::uint32_t group;
  std::uint32_t d;
  float scale;
};

inline constexpr std::uint32_t kPrefillTile = 64;  ///< queries per block, and keys that it processes at a time
inline constexpr std::uint32_t kPrefillWarps = 4;

/// Rows are padded by 16 bytes, so that the eight rows of a matrix load are in different banks.
template <std::uint32_t D>
constexpr std::size_t prefill_shared_bytes() {
  return std::size_t{5} * kPrefillTile * (D + 8) * 2;
}

/// Copies rows first to first + 64 of one head to shared memory. Rows from `end` on and elements from d on become zero.
template <class T, std::uint32_t D>
__device__ __forceinline__ void load_rows(const T* head, std::size_t stride, std::uint32_t first, std::uint32_t end,
                                          std::uint32_t d, T* to) {
  for (std::uint32_t i = threadIdx.x; i < kPrefillTile * D / 8; i += blockDim.x) {
    const std::uint32_t row = i / (D / 8), column = i % (D / 8) * 8;
    const bool valid = first + row < end && column < d;
    copy_async(to + row * (D + 8) + column, valid ? head + (first + row) * stride + column : head, valid);
  }
}

/// Grid (tiles of 64 queries of the longest sequence, heads, sequences); d a multiple of 8, at most D; 16-byte aligned
/// rows; sm_80. A warp has 16 queries. Keys and values of the next tile are copied while this tile is computed.
template <class T, std::uint32_t D>
__global__ void __launch_bounds__(32 * kPrefillWarps) prefill_tile_kernel(PrefillArguments<T> a) {
  constexpr std::uint32_t kPitch = D + 8, kTile = kPrefillTile * kPitch;
  const std::uint32_t head = blockIdx.y, start = a.starts[blockIdx.z], length = a.starts[blockIdx.z + 1] - start;
  // Start the longest tiles first.
  const std::uint32_t first_query = (gridDim.x - 1 - blockIdx.x) * kPrefillTile;
  if (first_query >= length) return;
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  T* const shared_q = block_memory<T>();
  T* const shared_k = shared_q + kTile;
  T* const shared_v = shared_k + 2 * kTile;
  const T* q = a.q + start * a.q_stride + std::size_t{head} * a.d;
  const T* k = a.k + start * a.kv_stride + std::size_t{head / a.group} * a.d;
  const T* v = a.v + start * a.kv_stride + std::size_t{head / a.group} * a.d;
  const std::uint32_t tiles = first_query / kPrefillTile + 1;

  load_rows<T, D>(q, a.q_stride, first_query, length, a.d, shared_q);
  load_rows<T, D>(k, a.kv_stride, 0, length, a.d, shared_k);
  load_rows<T, D>(v, a.kv_stride, 0, length, a.d, shared_v);
  commit_copies();

  std::uint32_t query[D / 16][4];
  float o[D / 8][4] = {};
  float maximum[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {0, 0};
  for (std::uint32_t tile = 0; tile < tiles; ++tile) {
    if (tile + 1 < tiles) {
      const std::uint32_t next = (tile + 1) % 2 * kTile;
      load_rows<T, D>(k, a.kv_stride, (tile + 1) * kPrefillTile, length, a.d, shared_k + next);
      load_rows<T, D>(v, a.kv_stride, (tile + 1) * kPrefillTile, length, a.d, shared_v + next);
    }
    commit_copies();
    wait_for_copies<1>();
    __syncthreads();
    if (tile == 0) {
#pragma unroll
      for (std::uint32_t i = 0; i < D / 16; ++i) {
        load_matrices(query[i], shared_q + (warp * 16 + lane % 16) * kPitch + i * 16 + lane / 16 * 8);
      }
    }
    const T* keys = shared_k + tile % 2 * kTile;
    const T* values = shared_v + tile % 2 * kTile;

    float s[kPrefillTile / 8][4] = {};
#pragma unroll
    for (std::uint32_t n = 0; n < kPrefillTile / 16; ++n) {
#pragma unroll
      for (std::uint32_t i = 0; i < D / 16; ++i) {
        // Matrices: keys 0-7 and 8-15 of elements 0-7, then of elements 8-15.
        std::uint32_t b[4];
        load_matrices(b, keys + (n * 16 + lane % 16) * kPitch + i * 16 + lane / 16 * 8);
        multiply_tile<T>(s[2 * n], query[i], b[0], b[2]);
        multiply_tile<T>(s[2 * n + 1], query[i], b[1], b[3]);
      }
    }
    const bool diagonal = tile + 1 == tiles;
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      const std::uint32_t row = first_query + warp * 16 + g + 8 * half;
      float top = maximum[half];
#pragma unroll
      for (std::uint32_t n = 0; n < kPrefillTile / 8; ++n) {
#pragma unroll
        for (std::uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
          const std::uint32_t key = tile * kPrefillTile + n * 8 + 2 * t + e % 2;
          s[n][e] = diagonal && key > row ? -FLT_MAX : s[n][e] * a.scale;
          top = fmaxf(top, s[n][e]);
        }
      }
      top = fmaxf(top, shuffle_xor(top, 1));
      top = fmaxf(top, shuffle_xor(top, 2));
      const float fade = expf(maximum[half] - top);
      maximum[half] = top;
      sum[half] *= fade;
#pragma unroll
      for (std::uint32_t n = 0; n < kPrefillTile / 8; ++n) {
#pragma unroll
        for (std::uint32_t e = 2 * half; e < 2 * half + 2; ++e) {
          // Key 0 is visible to every row, so `top` is finite and masked scores become 0.
          s[n][e] = expf(s[n][e] - top);
          sum[half] += s[n][e];
        }
      }
#pragma unroll
      for (std::uint32_t n = 0; n < D / 8; ++n) {
        o[n][2 * half] *= fade;
        o[n][2 * half + 1] *= fade;
      }
    }
#pragma unroll
    for (std::uint32_t i = 0; i < kPrefillTile / 16; ++i) {
      const float(&left)[4] = s[2 * i];
      const float(&right)[4] = s[2 * i + 1];
      const std::uint32_t p[4] = {pack<T>(left[0], left[1]), pack<T>(left[2], left[3]), pack<T>(right[0], right[1]),
                                  pack<T>(right[2], right[3])};
#pragma unroll
      for (std::uint32_t n = 0; n < D / 16; ++n) {
        // Matrices: keys 0-7 and 8-15 of elements 0-7, then of elements 8-15.
        std::uint32_t b[4];
        load_matrices_transposed(b, values + (i * 16 + lane % 16) * kPitch + n * 16 + lane / 16 * 8);
        multiply_tile<T>(o[2 * n], p, b[0], b[1]);
        multiply_tile<T>(o[2 * n + 1], p, b[2], b[3]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (std::uint32_t half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const std::uint32_t row = first_query + warp * 16 + g + 8 * half;
    if (row >= length) continue;
    T* to = a.out + (start + row) * a.out_stride + std::size_t{head} * a.d;
#pragma unroll
    for (std::uint32_t n = 0; n < D / 8; ++n) {
      const std::uint32_t column = n * 8 + 2 * t;
      if (column >= a.d) continue;
      const std::uint32_t word = pack<T>(o[n][2 * half] / sum[half], o[n][2 * half + 1] / sum[half]);
      *reinterpret_cast<std::uint32_t*>(to + column) = word;
    }
  }
}

/// Supports any d up to 256 and any GPU. Grid (rows of the longest sequence, heads, sequences), one block per query;
/// shared memory as for decode_generic_kernel.
template <class T>
__global__ void prefill_generic_kernel(PrefillArguments<T> a) {
  const std::uint32_t head = blockIdx.y, start = a.starts[blockIdx.z], length = a.starts[blockIdx.z + 1] - start;
  if (blockIdx.x >= length) return;
  const std::size_t row = start + blockIdx.x, kv = start * a.kv_stride + std::size_t{head / a.group} * a.d;
  float o[kGenericElements], maximum, sum;
  attend_by_warp(
      a.q + row * a.q_stride + std::size_t{head} * a.d, a.k + kv, a.v + kv, a.d, a.scale, threadIdx.x / 32,
      blockIdx.x + 1, kDecodeWarps, [&](std::uint32_t i) { return i * a.kv_stride; }, o, maximum, sum);
  merge_warps(a.d, o, maximum, sum, [&](std::uint32_t i, float value, float, float total) {
    a.out[row * a.out_stride + std::size_t{head} * a.d + i] = from_float<T>(value / total);
  });
}

/// One thread per sequence and one for the end; see locate_rows().
inline __global__ void locate_rows_kernel(const std::uint32_t* starts, std::uint32_t sequences, std::size_t q_stride,
                                          std::size_t kv_stride, std::size_t out_stride, std::int64_t* offsets,
                                          std::int32_t* lengths) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i > sequences) return;
  const std::size_t start = starts[i];
  offsets[i] = static_cast<std::int64_t>(start * q_stride);
  offsets[sequences + 1 + i] = static_cast<std::int64_t>(start * kv_stride);
  offsets[2 * (sequences + 1) + i] = static_cast<std::int64_t>(start * out_stride);
  if (i < sequences) lengths[i] = static_cast<std::int32_t>(starts[i + 1] - start);
}

}  // namespace csdsim::host::cuda
