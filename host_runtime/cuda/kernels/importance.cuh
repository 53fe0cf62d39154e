// Importance of tokens from quantised keys, and what stands around the sort that chooses the best.
#pragma once

#include "host_runtime/cuda/kernels/device.cuh"

#ifndef CSDSIM_CUDA_EMULATION
namespace csdsim::host::cuda {

/// sum + the products of the four signed bytes of each.
__device__ __forceinline__ int add_byte_products(int a, int b, int sum) { return __dp4a(a, b, sum); }

}  // namespace csdsim::host::cuda
#endif

namespace csdsim::host::cuda {

inline constexpr std::uint32_t kImportanceWarps = 4;

/// A warp a row of d values: integers in [-largest, largest], rounded half to even, times a scale; zeros have scale 0.
template <class T>
__global__ void quantise_kernel(const T* rows, std::size_t count, std::uint32_t d, float largest, std::int8_t* out,
                                float* scales) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::size_t row = std::size_t{blockIdx.x} * kImportanceWarps + threadIdx.x / 32;
  if (row >= count) return;  // a whole warp
  float magnitude = 0;
  for (std::uint32_t i = lane; i < d; i += 32) magnitude = fmaxf(magnitude, fabsf(to_float(rows[row * d + i])));
  const float scale = warp_max(magnitude) / largest;
  for (std::uint32_t i = lane; i < d; i += 32) {
    const float steps = scale > 0 ? rintf(to_float(rows[row * d + i]) / scale) : 0.0f;
    out[row * d + i] = static_cast<std::int8_t>(fminf(fmaxf(steps, -largest), largest));
  }
  if (lane == 0) scales[row] = scale;
}

/// Quantised queries [sequences][kv heads][group][d] and keys [slot][kv head][capacity][d], with a scale a row each; d
/// a multiple of 4. Scores [sequences][lists][stride]: a list is a KV head, or all of them.
struct ImportanceArguments {
  const std::int8_t* q;
  const float* q_scales;
  const std::int8_t* keys;
  const float* key_scales;
  const std::uint32_t* lengths;
  float* scores;
  std::size_t stride;
  std::uint32_t kv_heads, group, d, capacity;
  std::uint32_t heads_a_list;
};

/// A warp a token but the newest. Grid (tokens / warps, lists, sequences).
static __global__ void importance_kernel(ImportanceArguments a) {
  const std::uint32_t lane = threadIdx.x % 32, list = blockIdx.y, sequence = blockIdx.z;
  const std::uint32_t token = blockIdx.x * kImportanceWarps + threadIdx.x / 32;
  if (token + 1 >= a.lengths[sequence]) return;  // a whole warp
  float score = 0;
  for (std::uint32_t i = 0; i < a.heads_a_list; ++i) {
    const std::size_t head = std::size_t{sequence} * a.kv_heads + list * a.heads_a_list + i;
    const std::size_t row = head * a.capacity + token;
    const auto* key = reinterpret_cast<const int*>(a.keys + row * a.d);
    for (std::uint32_t g = 0; g < a.group; ++g) {
      const auto* query = reinterpret_cast<const int*>(a.q + (head * a.group + g) * a.d);
      int product = 0;
      for (std::uint32_t word = lane; word < a.d / 4; word += 32) {
        product = add_byte_products(query[word], key[word], product);
      }
      for (int step = 16; step > 0; step /= 2) product += shuffle_xor(product, step);
      score += a.q_scales[head * a.group + g] * a.key_scales[row] * static_cast<float>(product);
    }
  }
  if (lane == 0) a.scores[(std::size_t{sequence} * gridDim.y + list) * a.stride + token] = score;
}

/// Prepares the sort of [lists][stride] scores: indices that count up, and where lists begin and end.
/// `lists_a_sequence` lists have the length of a sequence, less the newest token.
static __global__ void prepare_lists_kernel(const std::uint32_t* lengths, std::uint32_t lists_a_sequence,
                                            std::uint32_t stride, std::uint32_t* indices, int* begins, int* ends) {
  for (std::uint32_t i = threadIdx.x; i < stride; i += blockDim.x) indices[std::size_t{blockIdx.x} * stride + i] = i;
  if (threadIdx.x != 0) return;
  const std::uint32_t begin = blockIdx.x * stride, length = lengths[blockIdx.x / lists_a_sequence];
  begins[blockIdx.x] = static_cast<int>(begin);
  ends[blockIdx.x] = static_cast<int>(begin + (length == 0 ? 0 : length - 1));
}

/// The first of the sorted indices, and the newest token: `budget` in all, or as many as there are.
static __global__ void take_best_kernel(const std::uint32_t* sorted, const std::uint32_t* lengths,
                                        std::uint32_t lists_a_sequence, std::uint32_t stride, std::uint32_t budget,
                                        std::uint32_t* chosen, std::uint32_t* counts) {
  const std::size_t list = blockIdx.x;
  const std::uint32_t length = lengths[blockIdx.x / lists_a_sequence], count = min(budget, length);
  for (std::uint32_t i = threadIdx.x; i + 1 < count; i += blockDim.x) {
    chosen[list * stride + i] = sorted[list * stride + i];
  }
  if (threadIdx.x != 0) return;
  if (count > 0) chosen[list * stride + count - 1] = length - 1;
  counts[list] = count;
}

}  // namespace csdsim::host::cuda
