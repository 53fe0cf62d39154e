#include "host_runtime/cuda/kernels/importance.cuh"

#include "host_runtime/cuda/attention/grids.cuh"

namespace csdsim::host::cuda {

void quantise(const Stream& stream, const __half* rows, std::size_t count, std::uint32_t d, std::int8_t* out,
              float* scales) {
  launch("quantise", quantise_kernel, dim3(blocks_of(count, kListWarps)), kListThreads, 0, stream, rows, count, d, out,
         scales);
}

void quantise_keys(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                   std::uint32_t bits, std::int8_t* out, float* scales) {
  launch("quantise_keys", quantise_keys_kernel, item_grid(batch.most_new, kListWarps, batch, shape), kListThreads, 0,
         stream, batch, shape, keys, bits == 8 ? 127.0f : 7.0f, out, scales);
}

void importance(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const ImportanceQuery& query,
                std::uint32_t stride, float* scores) {
  const dim3 grid(blocks_of(batch.longest, kListWarps), query.per_head ? shape.kv_heads : 1, batch.count);
  launch("importance", importance_kernel, grid, kListThreads, 0, stream, batch, shape, query, stride, scores);
}

}  // namespace csdsim::host::cuda
