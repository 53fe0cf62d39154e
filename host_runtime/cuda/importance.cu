#include "host_runtime/cuda/kernels/importance.cuh"

#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

template <class T>
void quantise(const Stream& stream, const T* rows, std::size_t count, std::uint32_t d, std::uint32_t bits,
              std::int8_t* out, float* scales) {
  launch("quantise", quantise_kernel<T>, dim3(static_cast<unsigned>((count + kImportanceWarps - 1) / kImportanceWarps)),
         32 * kImportanceWarps, 0, stream, rows, count, d, bits == 8 ? 127.0f : 7.0f, out, scales);
}
template void quantise(const Stream&, const __half*, std::size_t, std::uint32_t, std::uint32_t, std::int8_t*, float*);
template void quantise(const Stream&, const __nv_bfloat16*, std::size_t, std::uint32_t, std::uint32_t, std::int8_t*,
                       float*);

void importance(const Stream& stream, const ImportanceQuery& q, const CacheShape& shape, bool per_head,
                std::uint32_t longest) {
  const std::uint32_t lists = per_head ? shape.kv_heads : 1;
  const ImportanceArguments arguments{q.q,          q.q_scales,     q.keys,
                                      q.key_scales, q.lengths,      q.scores,
                                      q.stride,     shape.kv_heads, shape.heads / shape.kv_heads,
                                      shape.d,      shape.capacity, shape.kv_heads / lists};
  launch("importance", importance_kernel,
         dim3((longest + kImportanceWarps - 1) / kImportanceWarps, lists, static_cast<unsigned>(q.sequences)),
         32 * kImportanceWarps, 0, stream, arguments);
}

void choose_best(const Stream& stream, DevicePool& pool, const float* scores, const std::uint32_t* lengths,
                 std::size_t sequences, std::uint32_t lists, std::uint32_t stride, std::uint32_t budget,
                 std::uint32_t* chosen, std::uint32_t* counts) {
  const std::size_t segments = sequences * lists, total = segments * stride;
  const DeviceBuffer<std::uint32_t> indices(pool, total), sorted(pool, total);
  const DeviceBuffer<int> begins(pool, segments), ends(pool, segments);
  const dim3 grid(static_cast<unsigned>(segments));
  launch("prepare_lists", prepare_lists_kernel, grid, 128, 0, stream, lengths, lists, stride, indices.data(),
         begins.data(), ends.data());
  sort_lists(stream, pool, scores, indices.data(), total, segments, begins.data(), ends.data(), sorted.data());
  launch("take_best", take_best_kernel, grid, 128, 0, stream, sorted.data(), lengths, lists, stride, budget, chosen,
         counts);
}

}  // namespace csdsim::host::cuda
