#include "host_runtime/cuda/kernels/decode_attention.cuh"

#include <cmath>

#include "host_runtime/cuda/decode_splits.h"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {
namespace {

// Blocks that a multiprocessor holds at a time.
template <class Kernel>
std::size_t resident_blocks(Kernel kernel, std::size_t shared_bytes) {
  int resident = 0;
  // Allow the memory before the occupancy query, so that the first step gets as many splits as the recorded one.
  allow_shared_memory("decode_attention", kernel, shared_bytes);
  CSDSIM_CUDA(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, 32 * kDecodeWarps, shared_bytes));
  if (resident == 0) fail("decode_attention", "a block does not fit into a multiprocessor");
  return static_cast<std::size_t>(resident);
}

}  // namespace

template <class T, class Out>
void decode_attention(const Stream& stream, DevicePool& pool, const DeviceInfo& device,
                      const DecodeQuery<T, Out>& query, const CacheShape& shape, std::uint32_t longest,
                      std::uint32_t splits) {
  const std::uint32_t group = shape.heads / shape.kv_heads, d = shape.d;
  // Heads of the tile kernel are 64, 128 or 256 elements wide; others use the next wider one.
  const std::uint32_t width = d <= 64 ? 64 : d <= 128 ? 128 : 256;
  const bool tile = device.compute_capability >= 80 && group <= kDecodeRows && d % 8 == 0 && d >= 64 && d <= 256 &&
                    decode_shared_bytes(width) <= device.shared_bytes_per_block;
  const auto kernel = !tile      ? decode_generic_kernel<T, Out>
                      : d == 64  ? decode_tile_kernel<T, Out, 64, true>
                      : d == 128 ? decode_tile_kernel<T, Out, 128, true>
                      : d < 128  ? decode_tile_kernel<T, Out, 128, false>
                                 : decode_tile_kernel<T, Out, 256, false>;
  const std::uint32_t blocks = tile ? shape.kv_heads : shape.heads;
  const std::size_t shared = tile ? decode_shared_bytes(width) : kDecodeWarps * (d + 2) * sizeof(float);
  if (splits == 0) {
    splits = decode_splits({query.sequences * blocks, (longest + kDecodeUnit - 1) / kDecodeUnit,
                            static_cast<std::size_t>(device.multiprocessors), resident_blocks(kernel, shared)});
  }
  const auto sequences = static_cast<std::uint32_t>(query.sequences);
  const std::uint32_t per_sequence = query.chosen == nullptr || query.chosen_lists == 1 ? 1 : shape.kv_heads,
                      lists = sequences * per_sequence, blocks_per_list = blocks / per_sequence,
                      heads_per_list = shape.heads / per_sequence;
  // Blocks share the tokens of several sequences, whose lengths may differ, even if there is but one for each.
  const bool divided = splits > 1 || sequences > 1;
  const std::uint32_t sharing = divided ? sequences * blocks * splits : 0;
  // At most as many parts have the whole share of a block as there are blocks; each list has one more.
  const std::uint32_t parts = divided ? sharing / blocks_per_list + lists : lists;
  const std::size_t partial = divided ? std::size_t{parts} * heads_per_list : 0;
  const DeviceBuffer<float> outs(pool, partial * d);
  const DeviceBuffer<float2> scales(pool, partial);
  const DecodeArguments<T, Out> arguments{query.q,
                                          query.keys,
                                          query.values,
                                          query.out,
                                          outs.data(),
                                          scales.data(),
                                          query.softmax,
                                          query.slots,
                                          query.lengths,
                                          query.chosen,
                                          query.chosen_counts,
                                          query.q_stride,
                                          query.out_stride,
                                          std::size_t{shape.kv_heads} * shape.capacity * d,
                                          std::size_t{shape.capacity} * d,
                                          query.chosen_stride,
                                          shape.kv_heads,
                                          group,
                                          d,
                                          sharing,
                                          lists,
                                          per_sequence,
                                          blocks_per_list,
                                          heads_per_list / blocks_per_list,
                                          1.0f / std::sqrt(static_cast<float>(d))};
  launch("decode_attention", kernel, dim3(parts, blocks_per_list), 32 * kDecodeWarps, shared, stream, arguments);
  if (divided) {
    launch("merge_parts", merge_parts_kernel<T, Out>, dim3(shape.heads, sequences), 128, 0, stream, arguments);
  }
}

#define CSDSIM_INSTANTIATE(T, Out)                                                                          \
  template void decode_attention(const Stream&, DevicePool&, const DeviceInfo&, const DecodeQuery<T, Out>&, \
                                 const CacheShape&, std::uint32_t, std::uint32_t);

CSDSIM_INSTANTIATE(__half, __half)
CSDSIM_INSTANTIATE(__half, float)
CSDSIM_INSTANTIATE(__nv_bfloat16, __nv_bfloat16)

}  // namespace csdsim::host::cuda
