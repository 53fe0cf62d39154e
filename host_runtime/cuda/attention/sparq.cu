#include "host_runtime/cuda/kernels/sparq.cuh"

#include "host_runtime/cuda/attention/grids.cuh"

namespace csdsim::host::cuda {

void extend_components(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                       const __half* values, __half* components, float* means) {
  launch("extend_components", extend_components_kernel, item_grid(batch.most_new, kListThreads, batch, shape),
         kListThreads, 0, stream, batch, shape, keys, components);
  launch("extend_means", extend_means_kernel, head_grid(batch, shape), kListThreads, 0, stream, batch, shape, values,
         means);
}

void choose_components(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                       std::uint32_t r, std::uint32_t* chosen, float* tau) {
  launch("choose_components", choose_components_kernel, head_grid(batch, shape), kListThreads,
         2 * shape.d * sizeof(float), stream, batch, shape, q, r, chosen, tau);
}

void component_logits(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                      const __half* components, const std::uint32_t* chosen, const float* tau, std::uint32_t r,
                      std::uint32_t stride, float* logits) {
  launch("component_logits", component_logits_kernel, item_grid(batch.longest, kListThreads, batch, shape),
         kListThreads, 0, stream, batch, shape, q, components, chosen, tau, r, stride, logits);
}

void combine_logits(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const float* logits,
                    std::uint32_t stride, const float2* softmax, bool probabilities, float* scores) {
  launch("combine_logits", combine_logits_kernel, item_grid(batch.longest, kListThreads, batch, shape), kListThreads, 0,
         stream, batch, shape, logits, stride, softmax, probabilities, scores);
}

void blend_mean(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const BlendArguments& blend,
                float* out) {
  launch("blend_mean", blend_mean_kernel, dim3(shape.heads, batch.count), kListThreads, kListWarps * sizeof(float),
         stream, batch, shape, blend, out);
}

}  // namespace csdsim::host::cuda
