#include "host_runtime/cuda/kernels/infinigen.cuh"

#include <cmath>

#include "host_runtime/cuda/attention/grids.cuh"

namespace csdsim::host::cuda {

void project_keys(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                  const float* skew, std::uint32_t columns, float* projected) {
  launch("project_keys", project_keys_kernel, item_grid(batch.most_new, kListWarps, batch, shape), kListThreads, 0,
         stream, batch, shape, keys, skew, columns, projected);
}

void speculate_scores(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                      const SpeculationArguments& speculation, float* scores, std::uint32_t* counts) {
  const std::size_t lists = std::size_t{batch.count} * shape.kv_heads;
  const DeviceBuffer<float> partial(pool, lists * speculation.columns);
  const DeviceBuffer<std::uint32_t> within(pool, lists);
  launch("project_queries", project_queries_kernel, head_grid(batch, shape), kListThreads, 0, stream, batch, shape,
         speculation, partial.data());
  launch("speculated_scores", speculated_scores_kernel, head_grid(batch, shape), kListThreads,
         kListWarps * sizeof(float2), stream, batch, shape, speculation, partial.data(),
         1.0f / std::sqrt(static_cast<float>(shape.d)), scores, within.data());
  launch("fetch_counts", fetch_counts_kernel, dim3(batch.count), kListThreads, 0, stream, batch, shape, speculation,
         within.data(), counts);
}

}  // namespace csdsim::host::cuda
