#include "host_runtime/cuda/attention/choosing.h"

#include "host_runtime/cuda/attention/grids.cuh"
#include "host_runtime/cuda/kernels/choosing.cuh"

namespace csdsim::host::cuda {

void extend_cache(const Stream& stream, const SequenceView& batch, const __half* k, const __half* v,
                  const CacheShape& shape, __half* keys, __half* values) {
  launch("extend_cache", extend_cache_kernel, dim3(batch.most_new, batch.count), kListThreads, 0, stream, batch, k, v,
         shape, keys, values);
}

void choose_best(const Stream& stream, const SequenceView& batch, std::uint32_t lists, std::uint32_t stride,
                 const float* scores, const std::uint32_t* newest, const std::uint32_t* counts, std::uint32_t* chosen) {
  launch("select_best", select_best_kernel, dim3(batch.count * lists), kSelectThreads,
         (kSelectThreads + 1) * sizeof(std::uint32_t), stream, batch, lists, stride, newest, counts, scores, chosen);
}

void choose_window(const Stream& stream, const SequenceView& batch, std::uint32_t sinks, std::uint32_t stride,
                   const std::uint32_t* counts, std::uint32_t* chosen) {
  launch("choose_window", choose_window_kernel, dim3(batch.count), kListThreads, 0, stream, batch, sinks, stride,
         counts, chosen);
}

void softmax_scales(const Stream& stream, std::uint32_t sequences, const CacheShape& shape, const float* scores,
                    std::uint32_t stride, const std::uint32_t* counts, std::uint32_t lists, float2* softmax) {
  launch("softmax_scales", softmax_scales_kernel, dim3(shape.heads, sequences), kListThreads,
         kListWarps * sizeof(float2), stream, scores, stride, counts, lists, shape.heads / shape.kv_heads, softmax);
}

}  // namespace csdsim::host::cuda
