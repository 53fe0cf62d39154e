// Bounds of chunks of keys, and the choice of tokens by them: the steps of ChunkAttention, one block per KV head.
#pragma once

#include "host_runtime/cuda/kernels/sequences.cuh"

namespace csdsim::host::cuda {

/// Recomputes the abstracts of the chunks that contain new tokens from all tokens of these chunks. Grid (chunks, kv
/// heads, sequences), one launch per level.
static __global__ void extend_chunks_kernel(SequenceView batch, CacheShape shape, const __half* keys,
                                            ChunkLevels levels, std::uint32_t level) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const std::uint32_t size = levels.leaf << level, chunk = place.first / size + blockIdx.x;
  const std::uint32_t first = chunk * size, end = min(first + size, place.length);
  if (first >= place.length) return;
  __half* const to =
      levels.abstracts[level] + (place.head * levels.chunks(level, levels.capacity) + chunk) * 2 * shape.d;
  for (std::uint32_t i = threadIdx.x; i < shape.d; i += blockDim.x) {
    float least = FLT_MAX, largest = -FLT_MAX;
    for (std::uint32_t t = first; t < end; ++t) {
      const float key = to_float(keys[(place.head * shape.capacity + t) * shape.d + i]);
      least = fminf(least, key);
      largest = fmaxf(largest, key);
    }
    to[i] = from_float<__half>(least);
    to[shape.d + i] = from_float<__half>(largest);
  }
}

/// The nodes of the tree of chunks: leaves first, then level by level.
struct ChunkNodes {
  const ChunkLevels& levels;
  std::uint32_t earlier;  ///< tokens in chunks: all but the newest

  __device__ __forceinline__ std::uint32_t first_of(std::uint32_t level) const {
    std::uint32_t first = 0;
    for (std::uint32_t i = 0; i < level; ++i) first += levels.chunks(i, earlier);
    return first;
  }
  __device__ __forceinline__ std::uint32_t level_of(std::uint32_t& node) const {
    std::uint32_t level = 0;
    for (; node >= levels.chunks(level, earlier); ++level) node -= levels.chunks(level, earlier);
    return level;
  }
  __device__ __forceinline__ std::uint32_t first_token(std::uint32_t node) const {
    const std::uint32_t level = level_of(node);
    return node * (levels.leaf << level);
  }
  __device__ __forceinline__ std::uint32_t tokens(std::uint32_t node) const {
    const std::uint32_t size = levels.leaf << level_of(node);
    return min(size, earlier - node * size);
  }
};

/// Computes bounds (lower, upper) of all nodes, [sequences][kv heads][nodes]. Grid (blocks of nodes, kv heads,
/// sequences), one warp per node.
static __global__ void chunk_bounds_kernel(SequenceView batch, CacheShape shape, const __half* q, ChunkLevels levels,
                                           std::uint32_t nodes, float2* bounds) {
  const HeadPlace place(batch, blockIdx.z, blockIdx.y, shape.kv_heads);
  const ChunkNodes tree{levels, place.length - 1};
  const std::uint32_t node = blockIdx.x * kListWarps + threadIdx.x / 32, group = shape.heads / shape.kv_heads;
  if (node >= tree.first_of(levels.count)) return;  // uniform over the warp
  std::uint32_t chunk = node;
  const std::uint32_t level = tree.level_of(chunk);
  const __half* least =
      levels.abstracts[level] + (place.head * levels.chunks(level, levels.capacity) + chunk) * 2 * shape.d;
  float lower = 0, upper = 0;
  for (std::uint32_t i = threadIdx.x % 32; i < shape.d; i += 32) {
    for (std::uint32_t g = 0; g < group; ++g) {
      const float query = to_float(q[(place.list * group + g) * shape.d + i]);
      const float a = query * to_float(least[i]), b = query * to_float(least[shape.d + i]);
      lower += fminf(a, b);
      upper += fmaxf(a, b);
    }
  }
  lower = warp_sum(lower);
  upper = warp_sum(upper);
  if (threadIdx.x % 32 == 0) bounds[place.list * nodes + node] = float2{lower, upper};
}

struct ChunkChoice {
  const float2* bounds;
  const std::uint32_t* budgets;
  std::uint32_t nodes;   ///< capacity in nodes per list
  std::uint32_t stride;  ///< stride of chosen and marks
  std::uint8_t* states;  ///< [sequences][kv heads][nodes]
  std::uint8_t* marks;   ///< [sequences][kv heads][stride]
  std::uint32_t* chosen;
  std::uint32_t* counts;
  std::uint32_t* examined;
};

/// Chooses the tokens of each list by the bounds. Grid (kv heads, sequences); shared memory: one value per thread.
static __global__ void choose_chunks_kernel(SequenceView batch, CacheShape shape, ChunkLevels levels, ChunkChoice c) {
  enum State : std::uint8_t { out, in, coming };
  const HeadPlace place(batch, blockIdx.y, blockIdx.x, shape.kv_heads);
  const std::uint32_t earlier = place.length - 1, budget = min(c.budgets[blockIdx.y], place.length);
  std::uint32_t* const scratch = block_memory<std::uint32_t>();
  std::uint32_t* const chosen = c.chosen + place.list * c.stride;
  if (budget == place.length) {
    for (std::uint32_t i = threadIdx.x; i < budget; i += blockDim.x) chosen[i] = i;
    if (threadIdx.x == 0) {
      c.counts[place.list] = budget;
      c.examined[place.list] = 0;
    }
    return;
  }
  const ChunkNodes tree{levels, earlier};
  const std::uint32_t nodes = tree.first_of(levels.count), top = tree.first_of(levels.count - 1), wanted = budget - 1;
  std::uint8_t* const states = c.states + place.list * c.nodes;
  const float2* const bounds = c.bounds + place.list * c.nodes;
  std::uint32_t examined = 0;
  for (std::uint32_t i = threadIdx.x; i < nodes; i += blockDim.x) {
    states[i] = i >= top ? in : out;
    examined += i >= top;
  }
  __syncthreads();
  const auto tokens = [&](std::uint32_t i) { return states[i] == in ? tree.tokens(i) : 0; };
  const auto lower = [&](std::uint32_t i) { return bounds[i].x; };
  const auto upper = [&](std::uint32_t i) { return bounds[i].y; };
  for (std::uint32_t split = 1; split != 0;) {
    const std::uint32_t needed = reached(nodes, max(wanted, 1u), lower, tokens, scratch);
    const std::uint32_t safe = reached(nodes, wanted + 1, upper, tokens, scratch);
    split = 0;
    for (std::uint32_t i = threadIdx.x; i < nodes; i += blockDim.x) {
      if (states[i] != in) continue;
      std::uint32_t chunk = i;
      const std::uint32_t level = tree.level_of(chunk);
      if (ordered_bits(upper(i)) < needed) {
        states[i] = out;
      } else if (level > 0 && ordered_bits(lower(i)) <= safe) {
        states[i] = out;
        ++split;
        const std::uint32_t child = tree.first_of(level - 1) + 2 * chunk;
        for (std::uint32_t half = 0; half < 2 && 2 * chunk + half < levels.chunks(level - 1, earlier); ++half) {
          states[child + half] = coming;
          ++examined;
        }
      }
    }
    split = block_count(split, scratch);
    for (std::uint32_t i = threadIdx.x; i < nodes; i += blockDim.x) {
      if (states[i] == coming) states[i] = in;
    }
    __syncthreads();
  }
  // Take the chunks with the highest upper bounds, older ones first if equal; of the last chunk take the newest tokens.
  std::uint8_t* const marks = c.marks + place.list * c.stride;
  for (std::uint32_t i = threadIdx.x; i < earlier; i += blockDim.x) marks[i] = 0;
  const std::uint32_t least = wanted == 0 ? 0xFFFFFFFFu : reached(nodes, wanted, upper, tokens, scratch);
  std::uint32_t own = 0;
  for (std::uint32_t i = threadIdx.x; i < nodes; i += blockDim.x) own += ordered_bits(upper(i)) > least ? tokens(i) : 0;
  const std::uint32_t left = wanted - block_count(own, scratch);  // tokens to take from chunks with the lowest bound
  for (std::uint32_t i = threadIdx.x; i < nodes; i += blockDim.x) {
    const std::uint32_t here = tokens(i), bits = ordered_bits(upper(i));
    if (here == 0 || bits < least) continue;
    std::uint32_t taken = here;
    const std::uint32_t first = tree.first_token(i);
    if (bits == least) {
      std::uint32_t older = 0;
      for (std::uint32_t j = 0; j < nodes && older < left; ++j) {
        if (ordered_bits(upper(j)) == least && tokens(j) > 0 && tree.first_token(j) < first) older += tokens(j);
      }
      taken = min(here, left - min(older, left));
    }
    for (std::uint32_t t = first + here - taken; t < first + here; ++t) marks[t] = 1;
  }
  __syncthreads();
  const std::uint32_t count = compact(
      place.length, [&](std::uint32_t i) { return i == earlier || marks[i] != 0; },
      [&](std::uint32_t rank, std::uint32_t i) { chosen[rank] = i; }, scratch);
  examined = block_count(examined, scratch);
  if (threadIdx.x == 0) {
    c.counts[place.list] = count;
    c.examined[place.list] = examined;
  }
}

}  // namespace csdsim::host::cuda
