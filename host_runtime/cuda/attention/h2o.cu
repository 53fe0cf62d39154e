#include "host_runtime/cuda/kernels/h2o.cuh"

#include <cmath>

#include "host_runtime/cuda/attention/grids.cuh"

namespace csdsim::host::cuda {
namespace {

float scale_of(const CacheShape& shape) { return 1.0f / std::sqrt(static_cast<float>(shape.d)); }

}  // namespace

void keep_new(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const KeptTokens& state) {
  launch("keep_new", keep_new_kernel, head_grid(batch, shape), kListThreads, 0, stream, batch, shape, state);
}

void list_kept(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const KeptTokens& state,
               std::uint32_t stride, std::uint32_t* chosen, std::uint32_t* counts) {
  launch("list_kept", list_kept_kernel, head_grid(batch, shape), kListThreads, 0, stream, batch, shape, state, stride,
         chosen, counts);
}

void weigh_prompt(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                  const __half* q, const __half* keys, const KeptTokens& state) {
  const DeviceBuffer<float2> softmax(pool, std::size_t{batch.count} * batch.most_new * shape.heads);
  launch("prompt_scales", prompt_scales_kernel, dim3(batch.most_new, shape.heads, batch.count), kListThreads,
         kListWarps * sizeof(float2), stream, batch, shape, q, keys, scale_of(shape), softmax.data());
  launch("prompt_weights", prompt_weights_kernel, dim3(batch.most_new, shape.kv_heads, batch.count), kListThreads,
         kListWarps * sizeof(float), stream, batch, shape, q, keys, scale_of(shape), softmax.data(), state);
}

void listed_scores(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                   const __half* keys, const std::uint32_t* chosen, const std::uint32_t* counts, std::uint32_t stride,
                   float* scores) {
  launch("listed_scores", listed_scores_kernel, item_grid(batch.longest, kListWarps, batch, shape), kListThreads, 0,
         stream, batch, shape, q, keys, chosen, counts, stride, scale_of(shape), scores);
}

void weigh_listed(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const float* scores,
                  const float2* softmax, std::uint32_t stride, const KeptTokens& state) {
  launch("weigh_listed", weigh_listed_kernel, item_grid(batch.longest, kListThreads, batch, shape), kListThreads, 0,
         stream, batch, shape, scores, softmax, stride, state);
}

void evict(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
           const std::uint32_t* capacities, const std::uint32_t* recents, bool by_mean, const KeptTokens& state) {
  const std::size_t room = std::size_t{batch.count} * shape.kv_heads * batch.longest;
  const DeviceBuffer<std::uint32_t> kept(pool, room);
  const DeviceBuffer<float> weights(pool, room);
  launch("evict", evict_kernel, head_grid(batch, shape), kListThreads, kListThreads * sizeof(std::uint32_t), stream,
         batch, shape, capacities, recents, by_mean, state, batch.longest, kept.data(), weights.data());
}

}  // namespace csdsim::host::cuda
