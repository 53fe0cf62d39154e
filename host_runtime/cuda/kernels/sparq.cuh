// SparQ (arXiv 2312.04985): scores from a few components of the query, and the mean of the omitted values.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

namespace csdsim::host::cuda {

/// Stores new keys component by component. Grid (blocks of new tokens, kv heads, sequences), one thread per token.
static __global__ void extend_components_kernel(SequenceView batch, CacheShape shape, const __half* keys,
                                                __half* components) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = place.first + blockIdx.x * blockDim.x + threadIdx.x;
  if (token >= place.length) return;
  const std::size_t cache = place.head * shape.capacity * shape.d;
  for (std::uint32_t c = 0; c < shape.d; ++c) {
    components[cache + std::size_t{c} * shape.capacity + token] = keys[cache + std::size_t{token} * shape.d + c];
  }
}

/// Updates the mean of the values, mean += (v - mean) / tokens, token by token. Grid (kv heads, sequences).
static __global__ void extend_means_kernel(SequenceView batch, CacheShape shape, const __half* values, float* means) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  for (std::uint32_t i = threadIdx.x; i < shape.d; i += blockDim.x) {
    float mean = place.first == 0 ? 0.0f : means[place.head * shape.d + i];
    for (std::uint32_t t = place.first; t < place.length; ++t) {
      const float value = to_float(values[(place.head * shape.capacity + t) * shape.d + i]);
      mean += (value - mean) / static_cast<float>(t + 1);
    }
    means[place.head * shape.d + i] = mean;
  }
}

/// Chooses the components of the query. Grid (kv heads, sequences); shared memory: d magnitudes and d marks.
static __global__ void choose_components_kernel(SequenceView batch, CacheShape shape, const __half* q, std::uint32_t r,
                                                std::uint32_t* chosen, float* tau) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t d = shape.d, group = shape.heads / shape.kv_heads;
  const __half* queries = q + place.list * group * d;
  float* magnitude = block_memory<float>();
  auto* best = reinterpret_cast<std::uint32_t*>(magnitude + d);
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    float sum = 0;
    for (std::uint32_t g = 0; g < group; ++g) sum += fabsf(to_float(queries[g * d + i]));
    magnitude[i] = sum;
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    std::uint32_t rank = 0;
    for (std::uint32_t j = 0; j < d; ++j) {
      rank += magnitude[j] > magnitude[i] || (magnitude[j] == magnitude[i] && j < i);
    }
    best[i] = rank < r;
  }
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    std::uint32_t at = 0;
    for (std::uint32_t j = 0; j < i; ++j) at += best[j];
    if (best[i]) chosen[place.list * r + at] = i;
  }
  for (std::uint32_t g = threadIdx.x; g < group; g += blockDim.x) {
    float part = 0, all = 0;
    for (std::uint32_t i = 0; i < d; ++i) {
      const float size = fabsf(to_float(queries[g * d + i]));
      all += size;
      if (best[i]) part += size;
    }
    // If the query or its chosen part is zero, every score is 0 for any tau.
    const auto width = static_cast<float>(d);
    tau[place.list * group + g] = sqrtf(part > 0 && r < d ? width * part / all : width);
  }
}

inline constexpr std::uint32_t kLogitGroup = 8;  ///< query heads that read a component together

/// Computes logits from the chosen components. Grid (blocks of tokens, kv heads, sequences), one thread per token.
static __global__ void component_logits_kernel(SequenceView batch, CacheShape shape, const __half* q,
                                               const __half* components, const std::uint32_t* chosen, const float* tau,
                                               std::uint32_t r, std::uint32_t stride, float* logits) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x, group = shape.heads / shape.kv_heads;
  if (token >= place.length) return;
  const __half* column = components + place.head * shape.capacity * shape.d + token;
  for (std::uint32_t first = 0; first < group; first += kLogitGroup) {
    float sum[kLogitGroup] = {};
    for (std::uint32_t i = 0; i < r; ++i) {
      const std::uint32_t c = chosen[place.list * r + i];
      const float key = to_float(column[std::size_t{c} * shape.capacity]);
#pragma unroll
      for (std::uint32_t g = 0; g < kLogitGroup; ++g) {
        if (first + g >= group) break;
        sum[g] = fmaf(to_float(q[(place.list * group + first + g) * shape.d + c]), key, sum[g]);
      }
    }
#pragma unroll
    for (std::uint32_t g = 0; g < kLogitGroup; ++g) {
      if (first + g >= group) break;
      const std::size_t head = place.list * group + first + g;
      logits[head * stride + token] = sum[g] / tau[head];
    }
  }
}

/// Combines the logits of a group's heads into scores. Grid (blocks of tokens, kv heads, sequences), one thread per
/// token.
static __global__ void combine_logits_kernel(SequenceView batch, CacheShape shape, const float* logits,
                                             std::uint32_t stride, const float2* softmax, bool probabilities,
                                             float* scores) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = blockIdx.x * blockDim.x + threadIdx.x, group = shape.heads / shape.kv_heads;
  if (token >= place.length) return;
  float sum = 0;
  for (std::uint32_t g = 0; g < group; ++g) {
    const std::size_t head = place.list * group + g;
    const float logit = logits[head * stride + token];
    sum += probabilities ? expf(logit - softmax[head].x) / softmax[head].y : logit;
  }
  scores[place.list * stride + token] = sum;
}

/// Blends the mean of the values into the output. Grid (heads, sequences).
static __global__ void blend_mean_kernel(SequenceView batch, CacheShape shape, BlendArguments b, float* out) {
  const std::uint32_t group = shape.heads / shape.kv_heads, d = shape.d;
  const HeadPlace place(batch, blockIdx.y, blockIdx.x / group, shape.kv_heads);
  const std::size_t head = std::size_t{blockIdx.y} * shape.heads + blockIdx.x;
  const std::uint32_t count = min(b.counts[place.list], place.length);
  const std::uint32_t* chosen = b.chosen + place.list * b.stride;
  if (count == place.length) {  // dense: no token is omitted
    if (threadIdx.x == 0) b.alpha[head] = 1;
    return;
  }
  float mass = 0;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    mass += expf(b.logits[head * b.stride + chosen[i]] - b.softmax[head].x);
  }
  const float share = fminf(block_sum(mass, block_memory<float>()) / b.softmax[head].y, 1.0f);
  if (threadIdx.x == 0) b.alpha[head] = share;
  const float alpha = b.reallocate ? share : 1.0f;
  for (std::uint32_t i = threadIdx.x; i < d; i += blockDim.x) {
    float mean = b.means[place.head * d + i];
    if (b.mean_of_rest) {
      float sum = 0;
      for (std::uint32_t j = 0; j < count; ++j) {
        sum += to_float(b.values[(place.head * shape.capacity + chosen[j]) * d + i]);
      }
      mean = (static_cast<float>(place.length) * mean - sum) / static_cast<float>(place.length - count);
    }
    float& to = out[head * d + i];
    to = alpha * to + (1.0f - alpha) * mean;
  }
}

}  // namespace csdsim::host::cuda
