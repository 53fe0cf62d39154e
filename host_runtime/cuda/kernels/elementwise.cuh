// Kernels that read and write rows once. T is __half or __nv_bfloat16; arithmetic is fp32.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"

namespace csdsim::host::cuda {

/// out[i] = table[rows[i]]; one block per row. If `shift` is not null, row shift_rows[i] + shift_offset of this second
/// table is added (learned positions).
template <class T>
__global__ void gather_rows_kernel(const T* table, const std::uint32_t* rows, const T* shift,
                                   const std::uint32_t* shift_rows, std::uint32_t shift_offset, std::uint32_t cols,
                                   T* out) {
  const T* from = table + std::size_t{rows[blockIdx.x]} * cols;
  const T* added = shift == nullptr ? nullptr : shift + (std::size_t{shift_rows[blockIdx.x]} + shift_offset) * cols;
  T* to = out + std::size_t{blockIdx.x} * cols;
  for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
    to[i] = added == nullptr ? from[i] : from_float<T>(to_float(from[i]) + to_float(added[i]));
  }
}

/// One block per row: x += delta, then out = norm(x). The norm is LayerNorm with gamma and beta if kCentre, otherwise
/// RMSNorm. `delta` and `out` may be null. Shared memory: 2 floats per warp and `cols` floats.
template <class T, bool kCentre>
__global__ void norm_kernel(T* x, const T* delta, const float* gamma, const float* beta, float epsilon,
                            std::uint32_t cols, T* out) {
  const unsigned warps = blockDim.x / 32;
  float* scratch = block_memory<float>();
  float* row = scratch + 2 * warps;
  const std::size_t at = std::size_t{blockIdx.x} * cols;
  float sum = 0;
  for (std::uint32_t i = threadIdx.x; i < cols; i += blockDim.x) {
    float value = to_float(x[at + i]);
    if (delta != nullptr) {
      x[at + i] = from_float<T>(value + to_float(delta[at + i]));
      value = to_float(x[at + i]);
    }
    row[i] = value;
    sum += kCentre ? value : value * value;
  }
  if (out == nullptr) return;
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

/// Rotates elements i and i + half of a head by `position` * frequency[i].
template <class T>
__device__ __forceinline__ void rotate_pair(const T* from, T* to, std::uint32_t i, std::uint32_t half,
                                            std::uint32_t position, const float* frequency) {
  float sine, cosine;
  sincosf(static_cast<float>(position) * frequency[i], &sine, &cosine);
  const float first = to_float(from[i]), second = to_float(from[i + half]);
  to[i] = from_float<T>(first * cosine - second * sine);
  to[i + half] = from_float<T>(second * cosine + first * sine);
}

/// Applies rotary positions in place to the first `cols` elements of rows with the given stride; one block per row of
/// heads of 2 * half elements.
template <class T>
__global__ void rotate_kernel(T* x, const std::uint32_t* positions, const float* frequency, std::uint32_t cols,
                              std::size_t stride, std::uint32_t half) {
  T* row = x + blockIdx.x * stride;
  for (std::uint32_t i = threadIdx.x; i < cols / 2; i += blockDim.x) {
    T* head = row + i / half * 2 * half;
    rotate_pair(head, head, i % half, half, positions[blockIdx.x], frequency);
  }
}

/// One decode step of a layer; one block per sequence. `qkv` rows hold q, k and v of all heads. Rotates q in place and
/// k during the copy if `frequency` is given, and writes k and v to the caches [sequence][kv head][capacity][d] at the
/// position of the sequence.
template <class T>
__global__ void append_kernel(T* qkv, const std::uint32_t* positions, const float* frequency, std::uint32_t heads,
                              std::uint32_t kv_heads, std::uint32_t d, std::uint32_t capacity, T* keys, T* values) {
  const std::uint32_t q_cols = heads * d, kv_cols = kv_heads * d, half = d / 2;
  const std::uint32_t position = positions[blockIdx.x];
  T* q = qkv + std::size_t{blockIdx.x} * (q_cols + 2 * kv_cols);
  const T* k = q + q_cols;
  const T* v = k + kv_cols;
  const auto cache_row = [&](std::uint32_t head) {
    return ((std::size_t{blockIdx.x} * kv_heads + head) * capacity + position) * d;
  };
  for (std::uint32_t i = threadIdx.x; i < q_cols / 2 && frequency != nullptr; i += blockDim.x) {
    T* head = q + i / half * d;
    rotate_pair(head, head, i % half, half, position, frequency);
  }
  for (std::uint32_t i = threadIdx.x; i < kv_cols / 2; i += blockDim.x) {
    const std::uint32_t head = i / half, pair = i % half;
    const T* from = k + head * d;
    T* to = keys + cache_row(head);
    if (frequency != nullptr) {
      rotate_pair(from, to, pair, half, position, frequency);
    } else {
      to[pair] = from[pair];
      to[pair + half] = from[pair + half];
    }
    values[cache_row(head) + pair] = v[head * d + pair];
    values[cache_row(head) + pair + half] = v[head * d + pair + half];
  }
}

/// Copies rows of k and v [tokens][kv heads][d] of one sequence to its caches [kv head][capacity][d], from `first` on;
/// one block per token.
template <class T>
__global__ void store_kernel(const T* k, const T* v, std::size_t row_stride, std::uint32_t first,
                             std::uint32_t kv_heads, std::uint32_t d, std::uint32_t capacity, T* keys, T* values) {
  for (std::uint32_t i = threadIdx.x; i < kv_heads * d; i += blockDim.x) {
    const std::size_t to = (std::size_t{i / d} * capacity + first + blockIdx.x) * d + i % d;
    keys[to] = k[blockIdx.x * row_stride + i];
    values[to] = v[blockIdx.x * row_stride + i];
  }
}

/// Index of this thread's value in a grid with one value per thread.
__device__ __forceinline__ std::size_t element_index() { return std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; }

/// ReLU that keeps NaN, so that a broken checkpoint is visible in the logits.
template <class T>
__global__ void relu_kernel(T* x, std::size_t count) {
  const std::size_t i = element_index();
  if (i < count && to_float(x[i]) < 0) x[i] = from_float<T>(0);
}

/// out[r][i] = gate * sigmoid(gate) * up; rows of gate and up have the given stride.
template <class T>
__global__ void swiglu_kernel(const T* gate, const T* up, std::size_t stride, std::uint32_t cols, std::size_t count,
                              T* out) {
  const std::size_t i = element_index();
  if (i >= count) return;
  const std::size_t at = i / cols * stride + i % cols;
  const float g = to_float(gate[at]);
  out[i] = from_float<T>(g / (1.0f + expf(-g)) * to_float(up[at]));
}

template <class T>
__global__ void add_kernel(T* x, const T* y, std::size_t count) {
  const std::size_t i = element_index();
  if (i < count) x[i] = from_float<T>(to_float(x[i]) + to_float(y[i]));
}

template <class T>
__global__ void round_to_half_kernel(T* x, std::size_t count) {
  const std::size_t i = element_index();
  if (i < count) x[i] = from_float<T>(__half2float(__float2half_rn(to_float(x[i]))));
}

template <class From, class To>
__global__ void convert_kernel(const From* from, To* to, std::size_t count) {
  const std::size_t i = element_index();
  if (i < count) to[i] = from_float<To>(to_float(from[i]));
}

/// Adds bias[cols] to each of the rows in place.
template <class T>
__global__ void add_bias_kernel(T* x, const float* bias, std::uint32_t cols, std::size_t count) {
  const std::size_t i = element_index();
  if (i < count) x[i] = from_float<T>(to_float(x[i]) + bias[i % cols]);
}

}  // namespace csdsim::host::cuda
