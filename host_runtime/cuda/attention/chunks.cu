#include "host_runtime/cuda/kernels/chunks.cuh"

#include "host_runtime/cuda/attention/grids.cuh"

namespace csdsim::host::cuda {

void extend_chunks(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                   const ChunkLevels& levels) {
  for (std::uint32_t level = 0; level < levels.count; ++level) {
    // New tokens may start in the middle of a chunk and then touch one more chunk.
    const std::uint32_t touched = levels.chunks(level, batch.most_new) + 1;
    launch("extend_chunks", extend_chunks_kernel, dim3(touched, shape.kv_heads, batch.count), kListThreads, 0, stream,
           batch, shape, keys, levels, level);
  }
}

void choose_by_chunks(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                      const __half* q, const ChunkLevels& levels, const std::uint32_t* budgets, std::uint32_t stride,
                      std::uint32_t* chosen, std::uint32_t* counts, std::uint32_t* examined) {
  std::uint32_t nodes = 0;
  for (std::uint32_t level = 0; level < levels.count; ++level) nodes += levels.chunks(level, batch.longest);
  const std::size_t lists = std::size_t{batch.count} * shape.kv_heads;
  const DeviceBuffer<float2> bounds(pool, lists * nodes);
  const DeviceBuffer<std::uint8_t> states(pool, lists * nodes), marks(pool, lists * stride);
  launch("chunk_bounds", chunk_bounds_kernel, item_grid(nodes, kListWarps, batch, shape), kListThreads, 0, stream,
         batch, shape, q, levels, nodes, bounds.data());
  const ChunkChoice choice{bounds.data(), budgets, nodes,  stride,  states.data(),
                           marks.data(),  chosen,  counts, examined};
  launch("choose_chunks", choose_chunks_kernel, head_grid(batch, shape), kListThreads,
         kListThreads * sizeof(std::uint32_t), stream, batch, shape, levels, choice);
}

}  // namespace csdsim::host::cuda
