// Kernels that read and write rows once. T is __half or __nv_bfloat16; arithmetic is fp32. A thread processes W
// consecutive values: eight where rows and pointers allow it (see is_wide), otherwise one.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"

namespace csdsim::host::cuda {

/// Rows of values that are `stride` apart; 0: the same row again and again.
template <class T>
struct Rows {
  T* data;
  std::size_t stride;
};

/// ReLU that keeps NaN, so that a broken checkpoint is visible in the logits.
struct Rectify {
  __device__ __forceinline__ float operator()(float x) const { return x < 0 ? 0.0f : x; }
};
struct RoundToHalf {
  __device__ __forceinline__ float operator()(float x) const { return __half2float(__float2half_rn(x)); }
};
struct Identity {
  __device__ __forceinline__ float operator()(float x) const { return x; }
};
struct Sum {
  __device__ __forceinline__ float operator()(float x, float y) const { return x + y; }
};
struct GatedSilu {
  __device__ __forceinline__ float operator()(float gate, float up) const { return gate / (1.0f + expf(-gate)) * up; }
};

/// out[r][i] = function(x[r][i]), or function(x[r][i], y[r][i]). Grid (pieces of a row, rows or fewer).
template <std::uint32_t W, class Function, class Out, class... In>
__global__ void map_kernel(Rows<Out> out, std::size_t rows, std::size_t cols, Rows<const In>... in) {
  const std::size_t i = (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * W;
  if (i >= cols) return;
  const auto apply = [&](std::size_t row, const Piece<In, W>&... pieces) {
    Piece<Out, W> result;
#pragma unroll
    for (std::uint32_t j = 0; j < W; ++j) result.values[j] = from_float<Out>(Function()(to_float(pieces.values[j])...));
    write_piece<W>(out.data + row * out.stride + i, result);
  };
  for (std::size_t row = blockIdx.y; row < rows; row += gridDim.y) {
    apply(row, read_piece<W>(in.data + row * in.stride + i)...);
  }
}

/// Reads `count` pieces. What it computes of them is written only if it has a value that it does not have, which the
/// compiler cannot know.
inline __global__ void read_kernel(const uint4* values, std::size_t count, std::uint32_t* sink) {
  std::uint32_t sum = 0;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::size_t{gridDim.x} * blockDim.x) {
    const uint4 piece = values[i];
    sum |= piece.x | piece.y | piece.z | piece.w;
  }
  if (sum == 0x5A5A5A5Au) *sink = sum;
}

/// out[i] = table[rows[i]]; grid (rows, pieces of a row). If `shift` is not null, row shift_rows[i] + shift_offset of
/// this second table is added (learned positions).
template <class T, std::uint32_t W>
__global__ void gather_rows_kernel(const T* table, const std::uint32_t* rows, const T* shift,
                                   const std::uint32_t* shift_rows, std::uint32_t shift_offset, std::uint32_t cols,
                                   T* out) {
  const std::uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * W;
  if (i >= cols) return;
  Piece<T, W> piece = read_piece<W>(table + std::size_t{rows[blockIdx.x]} * cols + i);
  if (shift != nullptr) {
    const auto added = read_piece<W>(shift + (std::size_t{shift_rows[blockIdx.x]} + shift_offset) * cols + i);
#pragma unroll
    for (std::uint32_t j = 0; j < W; ++j) {
      piece.values[j] = from_float<T>(to_float(piece.values[j]) + to_float(added.values[j]));
    }
  }
  write_piece<W>(out + std::size_t{blockIdx.x} * cols + i, piece);
}

inline constexpr std::uint32_t kNormPieces = 2;      ///< pieces of eight values per thread of norm_kernel
inline constexpr std::uint32_t kNormThreads = 1024;  ///< threads per row at most

/// One block per row of at most kNormPieces * 8 * blockDim.x values: out = norm(x), LayerNorm with gamma and beta if
/// kCentre, otherwise RMSNorm. All that a thread reads is requested before the first sum, so that a row costs one
/// latency of memory. Shared memory: 2 floats per warp.
template <class T, bool kCentre>
__global__ void norm_kernel(const T* x, const float* gamma, const float* beta, float epsilon, std::uint32_t cols,
                            T* out) {
  float* scratch = block_memory<float>();
  Octet<T> values[kNormPieces] = {};
  Octet<float> scales[kNormPieces] = {}, shifts[kNormPieces] = {};
  const auto column = [&](std::uint32_t piece) { return (piece * blockDim.x + threadIdx.x) * 8; };
  const T* const row = x + std::size_t{blockIdx.x} * cols;
#pragma unroll
  for (std::uint32_t p = 0; p < kNormPieces; ++p) {
    if (column(p) >= cols) break;
    values[p] = read_piece<8>(row + column(p));
    scales[p] = read_piece<8>(gamma + column(p));
    if (kCentre) shifts[p] = read_piece<8>(beta + column(p));
  }
  float sum = 0;
#pragma unroll
  for (std::uint32_t p = 0; p < kNormPieces; ++p) {
    if (column(p) >= cols) break;
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) {
      const float value = to_float(values[p].values[j]);
      sum += kCentre ? value : value * value;
    }
  }
  const auto width = static_cast<float>(cols);
  float mean = 0, square = block_sum(sum, scratch) / width;
  if (kCentre) {
    mean = square;
    float squares = 0;
#pragma unroll
    for (std::uint32_t p = 0; p < kNormPieces; ++p) {
      if (column(p) >= cols) break;
#pragma unroll
      for (std::uint32_t j = 0; j < 8; ++j) {
        const float distance = to_float(values[p].values[j]) - mean;
        squares += distance * distance;
      }
    }
    square = block_sum(squares, scratch + blockDim.x / 32) / width;
  }
  const float inverse = 1.0f / sqrtf(square + epsilon);
#pragma unroll
  for (std::uint32_t p = 0; p < kNormPieces; ++p) {
    if (column(p) >= cols) break;
    Octet<T> result;
#pragma unroll
    for (std::uint32_t j = 0; j < 8; ++j) {
      const float value = (to_float(values[p].values[j]) - mean) * inverse * scales[p].values[j];
      result.values[j] = from_float<T>(kCentre ? value + shifts[p].values[j] : value);
    }
    write_piece<8>(out + std::size_t{blockIdx.x} * cols + column(p), result);
  }
}

/// The same for rows of any length. Shared memory: 2 floats per warp and `cols` floats.
template <class T, bool kCentre>
__global__ void norm_any_kernel(const T* x, const float* gamma, const float* beta, float epsilon, std::uint32_t cols,
                                T* out) {
  const unsigned warps = blockDim.x / 32;
  float* scratch = block_memory<float>();
  float* row = scratch + 2 * warps;
  const std::size_t at = std::size_t{blockIdx.x} * cols;
  float sum = 0;
  for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
    const float value = to_float(x[at + i]);
    row[i] = value;
    sum += kCentre ? value : value * value;
  }
  const auto width = static_cast<float>(cols);
  float mean = 0, square = block_sum(sum, scratch) / width;
  if (kCentre) {
    mean = square;
    float squares = 0;
    for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x) squares += (row[i] - mean) * (row[i] - mean);
    square = block_sum(squares, scratch + warps) / width;
  }
  const float inverse = 1.0f / sqrtf(square + epsilon);
  for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
    const float value = (row[i] - mean) * inverse * gamma[i];
    out[at + i] = from_float<T>(kCentre ? value + beta[i] : value);
  }
}

inline constexpr std::uint32_t kHeadNormWarps = 4;     ///< heads per block
inline constexpr std::uint32_t kHeadNormElements = 8;  ///< elements of a head per lane

/// RMSNorm in place of heads of at most 256 elements, a warp per head: those of q first. Grid (rows, heads /
/// kHeadNormWarps).
template <class T>
__global__ void norm_heads_kernel(T* rows, std::size_t stride, std::uint32_t q_heads, std::uint32_t heads,
                                  std::uint32_t d, const float* q_gamma, const float* k_gamma, float epsilon) {
  const std::uint32_t lane = threadIdx.x % 32, head = blockIdx.y * kHeadNormWarps + threadIdx.x / 32;
  if (head >= heads) return;  // uniform over the warp
  T* const at = rows + blockIdx.x * stride + std::size_t{head} * d;
  const float* const gamma = head < q_heads ? q_gamma : k_gamma;
  float values[kHeadNormElements], squares = 0;
#pragma unroll
  for (std::uint32_t j = 0; j < kHeadNormElements; ++j) {
    values[j] = lane + 32 * j < d ? to_float(at[lane + 32 * j]) : 0.0f;
    squares += values[j] * values[j];
  }
  const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(d) + epsilon);
#pragma unroll
  for (std::uint32_t j = 0; j < kHeadNormElements; ++j) {
    if (lane + 32 * j < d) at[lane + 32 * j] = from_float<T>(values[j] * inverse * gamma[lane + 32 * j]);
  }
}

}  // namespace csdsim::host::cuda
