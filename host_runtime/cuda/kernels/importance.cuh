// Importance of tokens from quantised keys.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

#ifndef CSDSIM_CUDA_EMULATION
namespace csdsim::host::cuda {

/// Adds the products of the four signed bytes of `a` and `b` to `sum`.
__device__ __forceinline__ int add_byte_products(int a, int b, int sum) { return __dp4a(a, b, sum); }

}  // namespace csdsim::host::cuda
#endif

namespace csdsim::host::cuda {

/// A warp quantises a row of d values to integers in [-largest, largest], rounded half to even, times a scale. A row of
/// zeros has scale 0.
__device__ __forceinline__ void quantise_row(const __half* row, std::uint32_t d, float largest, std::int8_t* out,
                                             float* to_scale) {
  const std::uint32_t lane = threadIdx.x % 32;
  float magnitude = 0;
  for (std::uint32_t i = lane; i < d; i += 32) magnitude = fmaxf(magnitude, fabsf(to_float(row[i])));
  const float scale = warp_max(magnitude) / largest;
  for (std::uint32_t i = lane; i < d; i += 32) {
    const float steps = scale > 0 ? rintf(to_float(row[i]) / scale) : 0.0f;
    out[i] = static_cast<std::int8_t>(fminf(fmaxf(steps, -largest), largest));
  }
  if (lane == 0) *to_scale = scale;
}

/// Quantises rows, one warp per row.
static __global__ void quantise_kernel(const __half* rows, std::size_t count, std::uint32_t d, std::int8_t* out,
                                       float* scales) {
  const std::size_t row = std::size_t{blockIdx.x} * kListWarps + threadIdx.x / 32;
  if (row < count) quantise_row(rows + row * d, d, 127, out + row * d, scales + row);
}

/// Quantises new keys. Grid (blocks of new tokens, kv heads, sequences), one warp per token.
static __global__ void quantise_keys_kernel(SequenceView batch, CacheShape shape, const __half* keys, float largest,
                                            std::int8_t* out, float* scales) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = place.first + blockIdx.x * kListWarps + threadIdx.x / 32;
  if (token >= place.length) return;  // uniform over the warp
  const std::size_t row = place.head * shape.capacity + token;
  quantise_row(keys + row * shape.d, shape.d, largest, out + row * shape.d, scales + row);
}

/// The product of query row `q` and key row `key` by a warp.
__device__ __forceinline__ float importance_product(const ImportanceQuery& query, std::size_t q, std::size_t key,
                                                    std::uint32_t d) {
  const std::uint32_t lane = threadIdx.x % 32;
  if (query.exact_keys != nullptr) {
    float sum = 0;
    for (std::uint32_t i = lane; i < d; i += 32)
      sum += to_float(query.exact_q[q * d + i]) * to_float(query.exact_keys[key * d + i]);
    return warp_sum(sum);
  }
  const auto* words = reinterpret_cast<const int*>(query.keys + key * d);
  const auto* q_words = reinterpret_cast<const int*>(query.q + q * d);
  int product = 0;
  for (std::uint32_t word = lane; word < d / 4; word += 32)
    product = add_byte_products(q_words[word], words[word], product);
  for (int step = 16; step > 0; step /= 2) product += shuffle_xor(product, step);
  return query.q_scales[q] * query.key_scales[key] * static_cast<float>(product);
}

/// Scores all tokens but the newest, one warp per token. Grid (blocks of tokens, lists, sequences).
static __global__ void importance_kernel(SequenceView batch, CacheShape shape, ImportanceQuery query,
                                         std::uint32_t stride, float* scores) {
  const std::uint32_t lane = threadIdx.x % 32, list = blockIdx.y, sequence = blockIdx.z;
  const std::uint32_t token = blockIdx.x * kListWarps + threadIdx.x / 32;
  if (token + 1 >= batch.lengths[sequence]) return;  // uniform over the warp
  const std::uint32_t heads = shape.kv_heads / gridDim.y, group = shape.heads / shape.kv_heads;
  float importance = query.largest ? -FLT_MAX : 0.0f;
  for (std::uint32_t head = list * heads; head < (list + 1) * heads; ++head) {
    const HeadPlace place(batch, sequence, head, shape.kv_heads);
    const std::size_t row = place.head * shape.capacity + token;
    for (std::uint32_t g = 0; g < group; ++g) {
      const float score = importance_product(query, place.list * group + g, row, shape.d);
      importance = query.largest ? fmaxf(importance, score) : importance + score;
    }
  }
  if (lane == 0) scores[(std::size_t{sequence} * gridDim.y + list) * stride + token] = importance;
}

}  // namespace csdsim::host::cuda
