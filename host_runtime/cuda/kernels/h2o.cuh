// H2O (arXiv 2306.14048): every kept token has the sum of the softmax weights that queries have given it.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

namespace csdsim::host::cuda {

/// Adds new tokens to the kept ones. Grid (kv heads, sequences).
static __global__ void keep_new_kernel(SequenceView batch, CacheShape shape, KeptTokens state) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t before = place.first == 0 ? 0 : state.counts[place.head], fresh = place.length - place.first;
  for (std::uint32_t i = threadIdx.x; i < fresh; i += blockDim.x) {
    const std::size_t at = place.head * shape.capacity + before + i;
    state.kept[at] = place.first + i;
    state.weights[at] = 0;
  }
  __syncthreads();  // all threads have read the count
  if (threadIdx.x == 0) state.counts[place.head] = before + fresh;
}

/// Lists the kept tokens. Grid (kv heads, sequences).
static __global__ void list_kept_kernel(SequenceView batch, CacheShape shape, KeptTokens state, std::uint32_t stride,
                                        std::uint32_t* chosen, std::uint32_t* counts) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t count = state.counts[place.head];
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) {
    chosen[place.list * stride + i] = state.kept[place.head * shape.capacity + i];
  }
  if (threadIdx.x == 0) counts[place.list] = count;
}

/// Computes maximum and sum of the softmax of every row of a prompt. Grid (rows of the longest prompt, heads,
/// sequences); softmax [rows][heads].
static __global__ void prompt_scales_kernel(SequenceView batch, CacheShape shape, const __half* q, const __half* keys,
                                            float scale, float2* softmax) {
  const std::uint32_t head = blockIdx.y;
  const HeadPlace place(batch, blockIdx.z, head / (shape.heads / shape.kv_heads), shape.kv_heads);
  const std::uint32_t token = place.first + blockIdx.x;
  if (token >= place.length) return;
  const std::size_t row = (std::size_t{batch.rows[blockIdx.z]} + blockIdx.x) * shape.heads + head;
  const __half* cache = keys + place.head * shape.capacity * shape.d;
  float2 own{-FLT_MAX, 0};
  for (std::uint32_t j = threadIdx.x / 32; j <= token; j += kListWarps) {
    const float score = dot_by_warp(q + row * shape.d, cache + std::size_t{j} * shape.d, shape.d) * scale;
    const float top = fmaxf(own.x, score);
    own = float2{top, own.y * expf(own.x - top) + expf(score - top)};
  }
  // All threads of a warp hold the same value, so only one counts.
  if (threadIdx.x % 32 != 0) own = float2{-FLT_MAX, 0};
  own = block_softmax(own, block_memory<float2>());
  if (threadIdx.x == 0) softmax[row] = own;
}

/// Sums the weights that a token gets from the rows from its own on. Grid (rows of the longest prompt, kv heads,
/// sequences).
static __global__ void prompt_weights_kernel(SequenceView batch, CacheShape shape, const __half* q, const __half* keys,
                                             float scale, const float2* softmax, KeptTokens state) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t token = place.first + blockIdx.x, group = shape.heads / shape.kv_heads;
  if (token >= place.length) return;
  const __half* key = keys + (place.head * shape.capacity + token) * shape.d;
  float weight = 0;
  for (std::uint32_t t = token + threadIdx.x / 32; t < place.length; t += kListWarps) {
    for (std::uint32_t g = 0; g < group; ++g) {
      const std::size_t row =
          (std::size_t{batch.rows[blockIdx.z]} + t - place.first) * shape.heads + blockIdx.y * group + g;
      const float score = dot_by_warp(q + row * shape.d, key, shape.d) * scale;
      weight += expf(score - softmax[row].x) / softmax[row].y;
    }
  }
  weight = block_sum(threadIdx.x % 32 == 0 ? weight : 0.0f, block_memory<float>());
  if (threadIdx.x == 0) state.weights[place.head * shape.capacity + token] += weight;
}

/// Scores the listed tokens. Grid (blocks of listed tokens, kv heads, sequences), one warp per token.
static __global__ void listed_scores_kernel(SequenceView batch, CacheShape shape, const __half* q, const __half* keys,
                                            const std::uint32_t* chosen, const std::uint32_t* counts,
                                            std::uint32_t stride, float scale, float* scores) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t at = blockIdx.x * kListWarps + threadIdx.x / 32, group = shape.heads / shape.kv_heads;
  if (at >= counts[place.list]) return;  // uniform over the warp
  const __half* key = keys + (place.head * shape.capacity + chosen[place.list * stride + at]) * shape.d;
  for (std::uint32_t g = 0; g < group; ++g) {
    const std::size_t head = place.list * group + g;
    const float score = dot_by_warp(q + head * shape.d, key, shape.d) * scale;
    if (threadIdx.x % 32 == 0) scores[head * stride + at] = score;
  }
}

/// Adds the weights of this step to the kept tokens. Grid (blocks of kept tokens, kv heads, sequences), one thread per
/// token.
static __global__ void weigh_listed_kernel(SequenceView batch, CacheShape shape, const float* scores,
                                           const float2* softmax, std::uint32_t stride, KeptTokens state) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t at = blockIdx.x * blockDim.x + threadIdx.x, group = shape.heads / shape.kv_heads;
  if (at >= state.counts[place.head]) return;
  float& weight = state.weights[place.head * shape.capacity + at];
  for (std::uint32_t g = 0; g < group; ++g) {
    const std::size_t head = place.list * group + g;
    weight += expf(scores[head * stride + at] - softmax[head].x) / softmax[head].y;
  }
}

/// Evicts tokens beyond the capacity. new_kept and new_weights [sequences][kv heads][stride] hold the survivors
/// temporarily. Grid (kv heads, sequences); shared memory: one value per thread.
static __global__ void evict_kernel(SequenceView batch, CacheShape shape, const std::uint32_t* capacities,
                                    const std::uint32_t* recents, bool by_mean, KeptTokens state, std::uint32_t stride,
                                    std::uint32_t* new_kept, float* new_weights) {
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t count = state.counts[place.head], capacity = capacities[blockIdx.y];
  if (count <= capacity) return;
  std::uint32_t* const scratch = block_memory<std::uint32_t>();
  std::uint32_t* const kept = state.kept + place.head * shape.capacity;
  float* const weights = state.weights + place.head * shape.capacity;
  const std::uint32_t oldest_recent = place.length - min(min(recents[blockIdx.y], capacity), place.length);
  std::uint32_t own = 0;
  for (std::uint32_t i = threadIdx.x; i < count; i += blockDim.x) own += kept[i] < oldest_recent;
  const std::uint32_t old = block_count(own, scratch);
  const std::uint32_t heavy = capacity - min(capacity, count - old);
  // The queries of a token and of all later tokens have seen it.
  const auto weight = [&](std::uint32_t i) {
    return by_mean ? weights[i] / static_cast<float>(place.length - kept[i]) : weights[i];
  };
  const auto one = [](std::uint32_t) { return 1u; };
  const std::uint32_t least = heavy == 0 ? 0 : reached(old, heavy, weight, one, scratch);
  own = 0;
  for (std::uint32_t i = threadIdx.x; i < old; i += blockDim.x) own += ordered_bits(weight(i)) > least;
  const std::uint32_t equals = heavy - (heavy == 0 ? 0 : block_count(own, scratch));  // that stay at the lowest weight
  const auto stays = [&](std::uint32_t i) {
    if (i >= old) return true;
    const std::uint32_t bits = ordered_bits(weight(i));
    if (heavy == 0 || bits < least) return false;
    if (bits > least) return true;
    std::uint32_t newer = 0;
    for (std::uint32_t j = i + 1; j < old && newer < equals; ++j) newer += ordered_bits(weight(j)) == least;
    return newer < equals;
  };
  const std::size_t to = place.list * stride;
  const std::uint32_t left = compact(
      count, stays,
      [&](std::uint32_t rank, std::uint32_t i) {
        new_kept[to + rank] = kept[i];
        new_weights[to + rank] = weights[i];
      },
      scratch);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < left; i += blockDim.x) {
    kept[i] = new_kept[to + i];
    weights[i] = new_weights[to + i];
  }
  if (threadIdx.x == 0) state.counts[place.head] = left;
}

}  // namespace csdsim::host::cuda
