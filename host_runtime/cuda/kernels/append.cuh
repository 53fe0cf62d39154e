// Rotary positions, and the rows of K and V that a step or a prompt adds to the caches [slot][kv head][capacity][d]. A
// thread processes W consecutive values as in elementwise.cuh.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// Rotates elements i to i + W and those `half` further by `position` * frequency[i], and multiplies by the magnitude.
template <std::uint32_t W, class T>
__device__ __forceinline__ void rotate_pieces(const T* from, T* to, std::uint32_t i, std::uint32_t half,
                                              std::uint32_t position, const Rotation& rotation) {
  Piece<T, W> first = read_piece<W>(from + i), second = read_piece<W>(from + i + half);
  const Piece<float, W> rates = read_piece<W>(rotation.frequency + i);
#pragma unroll
  for (std::uint32_t j = 0; j < W; ++j) {
    float sine, cosine;
    sincosf(static_cast<float>(position) * rates.values[j], &sine, &cosine);
    sine *= rotation.magnitude;
    cosine *= rotation.magnitude;
    const float x = to_float(first.values[j]), y = to_float(second.values[j]);
    first.values[j] = from_float<T>(x * cosine - y * sine);
    second.values[j] = from_float<T>(y * cosine + x * sine);
  }
  write_piece<W>(to + i, first);
  write_piece<W>(to + i + half, second);
}

template <std::uint32_t W, class T>
__device__ __forceinline__ void copy_pieces(const T* from, T* to, std::uint32_t i, std::uint32_t half) {
  write_piece<W>(to + i, read_piece<W>(from + i));
  write_piece<W>(to + i + half, read_piece<W>(from + i + half));
}

/// Applies rotary positions in place to the first `heads` heads of rows with the given stride; heads have 2 * half
/// elements. Grid (rows, heads * half / W threads).
template <class T, std::uint32_t W>
__global__ void rotate_kernel(T* x, const std::uint32_t* positions, Rotation rotation, std::uint32_t heads,
                              std::size_t stride, std::uint32_t half) {
  const std::uint32_t i = (blockIdx.y * blockDim.x + threadIdx.x) * W, head = i / half;
  if (head >= heads) return;
  T* const at = x + blockIdx.x * stride + std::size_t{head} * 2 * half;
  rotate_pieces<W>(at, at, i % half, half, positions[blockIdx.x], rotation);
}

/// One decode step of a layer. `qkv` rows hold q, k and v of all heads. Rotates q in place and k during the copy if
/// it has frequencies, and writes k and v to the caches at the position of the sequence. Grid (sequences, all heads *
/// d / 2 / W threads).
template <class T, std::uint32_t W>
__global__ void append_kernel(T* qkv, const std::uint32_t* positions, Rotation rotation, std::uint32_t heads,
                              std::uint32_t kv_heads, std::uint32_t d, std::uint32_t capacity, T* keys, T* values) {
  const std::uint32_t half = d / 2, i = (blockIdx.y * blockDim.x + threadIdx.x) * W, head = i / half;
  if (head >= heads + 2 * kv_heads) return;
  const std::uint32_t position = positions[blockIdx.x];
  T* const from = qkv + (std::size_t{blockIdx.x} * (heads + 2 * kv_heads) + head) * d;
  T* to = from;
  if (head >= heads) {
    const std::uint32_t kv_head = (head - heads) % kv_heads;
    T* const cache = head < heads + kv_heads ? keys : values;
    to = cache + ((std::size_t{blockIdx.x} * kv_heads + kv_head) * capacity + position) * d;
  }
  if (rotation.frequency != nullptr && head < heads + kv_heads) {
    rotate_pieces<W>(from, to, i % half, half, position, rotation);
  } else if (head >= heads) {
    copy_pieces<W>(from, to, i % half, half);
  }
}

/// Copies the parts of rows [q | k | v] to rows of q [heads * d], k and v [kv heads * d], and rotates q and k to their
/// positions if it has frequencies. Grid (rows, all heads * d / 2 / W threads).
template <class T, std::uint32_t W>
__global__ void split_kernel(const T* qkv, const std::uint32_t* positions, Rotation rotation, std::uint32_t heads,
                             std::uint32_t kv_heads, std::uint32_t d, T* q, T* k, T* v) {
  const std::uint32_t half = d / 2, i = (blockIdx.y * blockDim.x + threadIdx.x) * W, head = i / half;
  if (head >= heads + 2 * kv_heads) return;
  const std::size_t row = blockIdx.x;
  const T* const from = qkv + (row * (heads + 2 * kv_heads) + head) * d;
  T* const to = head < heads              ? q + (row * heads + head) * d
                : head < heads + kv_heads ? k + (row * kv_heads + head - heads) * d
                                          : v + (row * kv_heads + head - heads - kv_heads) * d;
  if (rotation.frequency != nullptr && head < heads + kv_heads) {
    rotate_pieces<W>(from, to, i % half, half, positions[blockIdx.x], rotation);
  } else {
    copy_pieces<W>(from, to, i % half, half);
  }
}

/// Copies rows of k and v [tokens][kv heads][d] of one sequence to its caches, from `first` on. Grid (tokens, kv_heads
/// * d / 2 / W threads).
template <class T, std::uint32_t W>
__global__ void store_kernel(const T* k, const T* v, std::size_t row_stride, std::uint32_t first,
                             std::uint32_t kv_heads, std::uint32_t d, std::uint32_t capacity, T* keys, T* values) {
  const std::uint32_t half = d / 2, i = (blockIdx.y * blockDim.x + threadIdx.x) * W, head = i / half;
  if (head >= kv_heads) return;
  const std::size_t from = blockIdx.x * row_stride + std::size_t{head} * d;
  const std::size_t to = (std::size_t{head} * capacity + first + blockIdx.x) * d;
  copy_pieces<W>(k + from, keys + to, i % half, half);
  copy_pieces<W>(v + from, values + to, i % half, half);
}

}  // namespace csdsim::host::cuda
