// out = x w^T for at most eight rows of x; the time is bound by reading w once.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kGemvBatch = 8;   ///< rows of x
inline constexpr std::uint32_t kGemvTile = 16;   ///< rows of w per block of the tensor-core kernel
inline constexpr std::uint32_t kGemvWarps = 4;   ///< warps per block
inline constexpr std::uint32_t kGemvRun = 64;    ///< columns of w that a warp processes at a time: one line of memory
inline constexpr std::uint32_t kGemvDepth = 4;   ///< runs in flight
inline constexpr std::uint32_t kGemvPieces = 6;  ///< 16-byte copies per thread and run: two of x, four of w
inline constexpr std::size_t kGemvSharedBytes = std::size_t{kGemvDepth} * kGemvPieces * 32 * kGemvWarps * 16;

/// x [batch][k], w [n][k]; out [batch][n] = x w^T + bias + residual. `bias` and `residual` may be null. A gated product
/// has w [2 n][k], first the rows of the gate, and out = silu(gate) * up, without ReLU and residual.
template <class T, class Out>
struct GemvArguments {
  const T* x;
  const T* w;
  const T* bias;
  const Out* residual;
  Out* out;
  std::uint32_t batch;
  std::uint32_t n;
  std::uint32_t k;
  bool relu;
};

template <class T, class Out>
__device__ __forceinline__ void store_product(const GemvArguments<T, Out>& a, std::uint32_t row, std::uint32_t column,
                                              float value) {
  const std::size_t at = std::size_t{row} * a.n + column;
  if (a.bias != nullptr) value += to_float(a.bias[column]);
  if (a.relu && value < 0) value = 0;
  if (a.residual != nullptr) value += to_float(a.residual[at]);
  a.out[at] = from_float<Out>(value);
}

/// The activation of neuron `column`, from its products with the rows of gate and up.
template <class T>
__device__ __forceinline__ void store_neuron(const GemvArguments<T, T>& a, std::uint32_t row, std::uint32_t column,
                                             float gate, float up) {
  if (a.bias != nullptr) {
    gate += to_float(a.bias[column]);
    up += to_float(a.bias[a.n + column]);
  }
  a.out[std::size_t{row} * a.n + column] = from_float<T>(gate / (1.0f + expf(-gate)) * up);
}

/// A block computes 16 columns of out, of a gated product 8: their rows of gate and those of up are the 16 of its tile;
/// its warps share the k columns of w in runs of 64. The order of the sum over k is free, so a thread reads 16
/// consecutive bytes of two rows of w and uses the eight values as columns 2t, 2t+1, 2t+8, 2t+9 of two tiles; x is read
/// the same way. Every thread copies its data to its own part of shared memory, several runs ahead: this keeps enough
/// bytes in flight and needs no barrier. Requires k to be a multiple of 32, 16-byte alignment and sm_80.
template <class T, class Out, bool kGated>
__global__ void __launch_bounds__(32 * kGemvWarps) gemv_tile_kernel(GemvArguments<T, Out> a) {
  const std::uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
  constexpr std::uint32_t kColumns = kGated ? kGemvTile / 2 : kGemvTile;
  const std::uint32_t first_row = blockIdx.x * kColumns;
  // Rows beyond the end repeat the last one; their products are not stored.
  const std::uint32_t upper_row = min(first_row + g, a.n - 1),
                      lower_row = kGated ? a.n + upper_row : min(first_row + g + 8, a.n - 1);
  const T* top = a.w + std::size_t{upper_row} * a.k + t * 8;
  const T* bottom = a.w + std::size_t{lower_row} * a.k + t * 8;
  const T* x = a.x + std::size_t{min(g, a.batch - 1)} * a.k + t * 8;
  const bool used = g < a.batch;
  uint4* const ring = block_memory<uint4>() + threadIdx.x;
  const auto place = [&](std::uint32_t run, std::uint32_t piece) {
    return ring + (run % kGemvDepth * kGemvPieces + piece) * 32 * kGemvWarps;
  };
  const std::uint32_t all_runs = (a.k + kGemvRun - 1) / kGemvRun;
  const std::uint32_t runs = (all_runs - min(warp, all_runs) + kGemvWarps - 1) / kGemvWarps;
  const auto start = [&](std::uint32_t run) {
    if (run < runs) {
      for (std::uint32_t half = 0; half < 2; ++half) {
        const std::uint32_t at = (run * kGemvWarps + warp) * kGemvRun + 32 * half;
        const bool inside = at < a.k;
        const std::uint32_t from = inside ? at : 0;
        copy_async_cached(place(run, half), x + from, inside && used);
        copy_async(place(run, 2 + 2 * half), top + from, inside);
        copy_async(place(run, 3 + 2 * half), bottom + from, inside);
      }
    }
    commit_copies();  // even without a copy, because groups are counted
  };
  for (std::uint32_t run = 0; run + 1 < kGemvDepth; ++run) start(run);
  float c[4] = {0, 0, 0, 0};
  for (std::uint32_t run = 0; run < runs; ++run) {
    start(run + kGemvDepth - 1);
    wait_for_copies<kGemvDepth - 1>();
#pragma unroll
    for (std::uint32_t half = 0; half < 2; ++half) {
      const uint4 input = *place(run, half), upper = *place(run, 2 + 2 * half), lower = *place(run, 3 + 2 * half);
      const std::uint32_t even[4] = {upper.x, lower.x, upper.y, lower.y};
      multiply_tile<T>(c, even, input.x, input.y);
      const std::uint32_t odd[4] = {upper.z, lower.z, upper.w, lower.w};
      multiply_tile<T>(c, odd, input.z, input.w);
    }
  }
  wait_for_copies<0>();
  synchronize_warp();  // the sums of a warp reuse its own part of the ring
  float* sums = block_memory<float>();
  float* partial = sums + warp * kGemvTile * kGemvBatch;
  partial[g * kGemvBatch + 2 * t] = c[0];
  partial[g * kGemvBatch + 2 * t + 1] = c[1];
  partial[(g + 8) * kGemvBatch + 2 * t] = c[2];
  partial[(g + 8) * kGemvBatch + 2 * t + 1] = c[3];
  __syncthreads();
  // Consecutive threads write consecutive columns.
  const std::uint32_t column = threadIdx.x % kColumns, row = threadIdx.x / kColumns;
  if (row >= a.batch || first_row + column >= a.n) return;
  const auto sum_of = [&](std::uint32_t tile_row) {
    float sum = 0;
    for (std::uint32_t w = 0; w < kGemvWarps; ++w) sum += sums[(w * kGemvTile + tile_row) * kGemvBatch + row];
    return sum;
  };
  if constexpr (kGated) {
    store_neuron(a, row, first_row + column, sum_of(column), sum_of(column + kColumns));
  } else {
    store_product(a, row, first_row + column, sum_of(column));
  }
}
static_assert(kGemvTile * kGemvBatch == 32 * kGemvWarps, "one product per thread");
static_assert(kGemvTile * kGemvBatch * sizeof(float) == 32 * sizeof(uint4), "sums of a warp fill a piece of its ring");

/// sum[b] += the products of row b of x with one row of w, which the lanes of a warp share.
template <class T, class Out>
__device__ __forceinline__ void add_row_products(const GemvArguments<T, Out>& a, const T* w, float (&sum)[kGemvBatch]) {
  const std::uint32_t lane = threadIdx.x % 32;
  if (a.k % 8 == 0) {
    for (std::uint32_t i = lane * 8; i < a.k; i += 256) {
      const auto weights = *reinterpret_cast<const Octet<T>*>(w + i);
#pragma unroll
      for (std::uint32_t b = 0; b < kGemvBatch; ++b) {
        if (b >= a.batch) break;
        const auto input = *reinterpret_cast<const Octet<T>*>(a.x + std::size_t{b} * a.k + i);
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[b] += to_float(weights.values[j]) * to_float(input.values[j]);
      }
    }
  } else {
    for (std::uint32_t i = lane; i < a.k; i += 32) {
      const float weight = to_float(w[i]);
#pragma unroll
      for (std::uint32_t b = 0; b < kGemvBatch; ++b) {
        if (b < a.batch) sum[b] += weight * to_float(a.x[std::size_t{b} * a.k + i]);
      }
    }
  }
}

/// Supports any k and any GPU; one warp per column of out.
template <class T, class Out, bool kGated>
__global__ void gemv_row_kernel(GemvArguments<T, Out> a) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t column = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
  if (column >= a.n) return;  // uniform over the warp
  float sum[kGemvBatch] = {}, up[kGated ? kGemvBatch : 1] = {};
  add_row_products(a, a.w + std::size_t{column} * a.k, sum);
  if constexpr (kGated) add_row_products(a, a.w + std::size_t{a.n + column} * a.k, up);
#pragma unroll
  for (std::uint32_t b = 0; b < kGemvBatch; ++b) {
    const float value = warp_sum(sum[b]);
    if constexpr (kGated) {
      const float other = warp_sum(up[b]);
      if (lane == 0 && b < a.batch) store_neuron(a, b, column, value, other);
    } else {
      if (lane == 0 && b < a.batch) store_product(a, b, column, value);
    }
  }
}

}  // namespace csdsim::host::cuda
