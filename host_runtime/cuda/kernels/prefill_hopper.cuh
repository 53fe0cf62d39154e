// Dense causal attention on sm_90, like FlashAttention-3 (arXiv 2407.08608): a producer warpgroup loads tiles of keys
// and values through the copy engine; two consumer warpgroups of 64 queries each compute the scores of the next tile
// while the product of the current tile with the values runs.
#pragma once

#include <cfloat>

#include "host_runtime/cuda/kernels/hopper.cuh"

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kHopperTile = 128;  ///< queries per block, keys per tile, elements per head
inline constexpr std::uint32_t kHopperThreads = 3 * 128;
inline constexpr std::uint32_t kHopperStages = 2;
inline constexpr std::uint32_t kPanelBytes = kHopperTile * 128;  ///< 64 elements of 128 rows
inline constexpr std::uint32_t kMatrixBytes = 2 * kPanelBytes;   ///< 128 elements of 128 rows
inline constexpr std::uint32_t kRowGroupBytes = 8 * 128;         ///< eight rows of a panel
/// Queries, stages of keys and values, barriers, and padding to start at a multiple of 1,024.
inline constexpr std::size_t kHopperSharedBytes = (1 + 2 * kHopperStages) * kMatrixBytes + 128 + 1024;

/// Boxes of the maps are 64 elements of one head of 128 rows. Sequence i has rows starts[i] to starts[i + 1] of q, k, v
/// and out [rows][heads * 128]; out has row stride `out_stride`.
template <class T>
struct HopperArguments {
  T* out;
  const std::uint32_t* starts;
  std::size_t out_stride;
  std::uint32_t group;
  float scale;  ///< scale of scores times log2(e), because the hardware computes powers of two
};

struct HopperShared {
  unsigned char* queries;
  unsigned char* keys;
  unsigned char* values;
  SharedBarrier* queries_full;
  SharedBarrier* keys_full;
  SharedBarrier* values_full;
  SharedBarrier* keys_empty;
  SharedBarrier* values_empty;

  __device__ __forceinline__ HopperShared() {
    unsigned char* base = block_memory<unsigned char>();
    base += (1024 - reinterpret_cast<std::uintptr_t>(base) % 1024) % 1024;
    queries = base;
    keys = queries + kMatrixBytes;
    values = keys + kHopperStages * kMatrixBytes;
    queries_full = reinterpret_cast<SharedBarrier*>(values + kHopperStages * kMatrixBytes);
    keys_full = queries_full + 1;
    values_full = keys_full + kHopperStages;
    keys_empty = values_full + kHopperStages;
    values_empty = keys_empty + kHopperStages;
  }
};

/// Copies both panels of 128 rows of a head.
__device__ __forceinline__ void copy_matrix(unsigned char* to, const TensorMap* map, SharedBarrier* barrier,
                                            std::uint32_t head, std::uint32_t row) {
  barrier_arrive_expecting(barrier, kMatrixBytes);
  copy_box(to, map, barrier, 0, static_cast<int>(head), static_cast<int>(row));
  copy_box(to + kPanelBytes, map, barrier, 64, static_cast<int>(head), static_cast<int>(row));
}

/// Starts the scores of 64 queries with a tile of keys, without waiting for them.
template <class T>
__device__ __forceinline__ void start_scores(float (&s)[16][4], std::uint32_t queries, std::uint32_t keys) {
#pragma unroll
  for (std::uint32_t i = 0; i < kHopperTile / 16; ++i) {
    const std::uint32_t at = i / 4 * kPanelBytes + i % 4 * 32;
    multiply_shared<T>(s, matrix_descriptor(queries + at, kRowGroupBytes, 0),
                       matrix_descriptor(keys + at, kRowGroupBytes, 0), i > 0);
  }
  products_commit();
}

/// Starts o += p times a tile of values, without waiting for it.
template <class T>
__device__ __forceinline__ void start_output(float (&o)[16][4], const std::uint32_t (&p)[8][4], std::uint32_t values) {
#pragma unroll
  for (std::uint32_t i = 0; i < kHopperTile / 16; ++i) {
    multiply_registers<T>(o, p[i], matrix_descriptor(values + 2 * i * kRowGroupBytes, kRowGroupBytes, kPanelBytes));
  }
  products_commit();
}

/// Converts scores to weights relative to the running maximum; `fade` is the factor for earlier weights. Index 0 is row
/// g, index 1 row g + 8 of the warp's rows (see multiply_tile).
__device__ __forceinline__ void soften(float (&s)[16][4], float scale, float (&maximum)[2], float (&sum)[2],
                                       float (&fade)[2]) {
#pragma unroll
  for (std::uint32_t half = 0; half < 2; ++half) {
    float top = maximum[half];
#pragma unroll
    for (std::uint32_t n = 0; n < 16; ++n) top = fmaxf(top, fmaxf(s[n][2 * half], s[n][2 * half + 1]));
    top = fmaxf(top, shuffle_xor(top, 1));
    top = fmaxf(top, shuffle_xor(top, 2));
    fade[half] = exp2_approximate((maximum[half] - top) * scale);
    maximum[half] = top;
    const float shift = top * scale;
    float total = sum[half] * fade[half];
#pragma unroll
    for (std::uint32_t n = 0; n < 16; ++n) {
      s[n][2 * half] = exp2_approximate(s[n][2 * half] * scale - shift);
      s[n][2 * half + 1] = exp2_approximate(s[n][2 * half + 1] * scale - shift);
      total += s[n][2 * half] + s[n][2 * half + 1];
    }
    sum[half] = total;
  }
}

template <class T>
__device__ __forceinline__ void pack_weights(const float (&s)[16][4], std::uint32_t (&p)[8][4]) {
#pragma unroll
  for (std::uint32_t i = 0; i < 8; ++i) {
    p[i][0] = pack<T>(s[2 * i][0], s[2 * i][1]);
    p[i][1] = pack<T>(s[2 * i][2], s[2 * i][3]);
    p[i][2] = pack<T>(s[2 * i + 1][0], s[2 * i + 1][1]);
    p[i][3] = pack<T>(s[2 * i + 1][2], s[2 * i + 1][3]);
  }
}

/// Processes the 64 queries of one warpgroup, from the diagonal tile down to tile 0.
template <class T>
__device__ __forceinline__ void consume_tiles(const HopperArguments<T>& a, const HopperShared& shared,
                                              std::uint32_t shared_base, std::uint32_t first_query,
                                              std::uint32_t length, std::uint32_t start, std::uint32_t head,
                                              std::uint32_t tiles) {
  const std::uint32_t thread = threadIdx.x - 128, lane = thread % 32, g = lane / 4, t = lane % 4;
  const std::uint32_t warp_row = thread / 32 * 16;  // first row of the warp in its warpgroup's 64 queries
  const std::uint32_t queries = shared_base + thread / 128 * 8 * kRowGroupBytes;
  const std::uint32_t keys = shared_base + kMatrixBytes, values = keys + kHopperStages * kMatrixBytes;
  const auto release = [&](SharedBarrier* barrier) {
    if (lane == 0) barrier_arrive(barrier);
  };
  float s[16][4], o[16][4];
  std::uint32_t p[8][4];
  float maximum[2] = {-FLT_MAX, -FLT_MAX}, sum[2] = {0, 0}, fade[2];
#pragma unroll
  for (std::uint32_t n = 0; n < 16; ++n) {
#pragma unroll
    for (std::uint32_t e = 0; e < 4; ++e) o[n][e] = 0;
  }

  barrier_wait(shared.queries_full, 0);
  barrier_wait(shared.keys_full, 0);
  products_begin();
  start_scores<T>(s, queries, keys);
  products_wait<0>(s);
  release(shared.keys_empty);
#pragma unroll
  for (std::uint32_t n = 0; n < 16; ++n) {
#pragma unroll
    for (std::uint32_t e = 0; e < 4; ++e) {
      if (n * 8 + 2 * t + e % 2 > warp_row + g + e / 2 * 8) s[n][e] = -FLT_MAX;
    }
  }
  soften(s, a.scale, maximum, sum, fade);
  pack_weights<T>(s, p);
  for (std::uint32_t tile = 1; tile < tiles; ++tile) {
    const std::uint32_t stage = tile % kHopperStages, before = (tile - 1) % kHopperStages;
    barrier_wait(shared.keys_full + stage, tile / kHopperStages % 2);
    products_begin();
    start_scores<T>(s, queries, keys + stage * kMatrixBytes);
    barrier_wait(shared.values_full + before, (tile - 1) / kHopperStages % 2);
    products_begin();
    start_output<T>(o, p, values + before * kMatrixBytes);
    products_wait<1>(s);
    release(shared.keys_empty + stage);
    soften(s, a.scale, maximum, sum, fade);
    compute_now(s);  // while the product with the values runs
    products_wait<0>(o);
    release(shared.values_empty + before);
#pragma unroll
    for (std::uint32_t n = 0; n < 16; ++n) {
#pragma unroll
      for (std::uint32_t e = 0; e < 4; ++e) o[n][e] *= fade[e / 2];
    }
    pack_weights<T>(s, p);
  }
  const std::uint32_t last = (tiles - 1) % kHopperStages;
  barrier_wait(shared.values_full + last, (tiles - 1) / kHopperStages % 2);
  products_begin();
  start_output<T>(o, p, values + last * kMatrixBytes);
  products_wait<0>(o);

#pragma unroll
  for (std::uint32_t half = 0; half < 2; ++half) {
    sum[half] += shuffle_xor(sum[half], 1);
    sum[half] += shuffle_xor(sum[half], 2);
    const std::uint32_t row = first_query + warp_row + g + 8 * half;
    if (row >= length) continue;
    T* to = a.out + (start + row) * a.out_stride + std::size_t{head} * kHopperTile + 2 * t;
    const float inverse = 1.0f / sum[half];
#pragma unroll
    for (std::uint32_t n = 0; n < 16; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + 8 * n) = pack<T>(o[n][2 * half] * inverse, o[n][2 * half + 1] * inverse);
    }
  }
}

/// Grid (tiles of 128 queries of the longest sequence, heads, sequences). A tile of keys may extend into the rows of
/// the next sequence; they are masked, but must be finite.
template <class T>
__global__ void __launch_bounds__(kHopperThreads, 1)
    prefill_hopper_kernel(const __grid_constant__ TensorMap q, const __grid_constant__ TensorMap k,
                          const __grid_constant__ TensorMap v, const HopperArguments<T> a) {
#if defined(CSDSIM_CUDA_EMULATION) || defined(__CUDA_ARCH_FEAT_SM90_ALL)
  const std::uint32_t head = blockIdx.y, start = a.starts[blockIdx.z], length = a.starts[blockIdx.z + 1] - start;
  // Start the longest tiles first.
  const std::uint32_t first_query = (gridDim.x - 1 - blockIdx.x) * kHopperTile;
  if (first_query >= length) return;
  const std::uint32_t tiles = first_query / kHopperTile + 1;
  const HopperShared shared;
  if (threadIdx.x == 0) {
    constexpr std::uint32_t kConsumerWarps = 8;
    barrier_init(shared.queries_full, 1);
    for (std::uint32_t i = 0; i < kHopperStages; ++i) {
      barrier_init(shared.keys_full + i, 1);
      barrier_init(shared.values_full + i, 1);
      barrier_init(shared.keys_empty + i, kConsumerWarps);
      barrier_init(shared.values_empty + i, kConsumerWarps);
    }
    barrier_publish();
  }
  __syncthreads();
  if (threadIdx.x < 128) {
    give_registers<24>();
    if (threadIdx.x == 0) {
      const std::uint32_t kv_head = head / a.group;
      copy_matrix(shared.queries, &q, shared.queries_full, head, start + first_query);
      for (std::uint32_t tile = 0; tile < tiles; ++tile) {
        const std::uint32_t stage = tile % kHopperStages, parity = tile / kHopperStages % 2 ^ 1;
        const std::uint32_t row = start + first_query - tile * kHopperTile;
        barrier_wait(shared.keys_empty + stage, parity);
        copy_matrix(shared.keys + stage * kMatrixBytes, &k, shared.keys_full + stage, kv_head, row);
        barrier_wait(shared.values_empty + stage, parity);
        copy_matrix(shared.values + stage * kMatrixBytes, &v, shared.values_full + stage, kv_head, row);
      }
    }
  } else {
    take_registers<240>();
    consume_tiles(a, shared, shared_address(shared.queries), first_query, length, start, head, tiles);
  }
#else
  asm volatile("trap;");  // compiled for sm_90 without the sm_90a instructions: stop instead of a wrong result
#endif
}

}  // namespace csdsim::host::cuda
