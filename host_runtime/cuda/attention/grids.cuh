// Launch grids of the kernels of the attention methods.
#pragma once

#include "host_runtime/cuda/attention/choosing.h"
#include "host_runtime/cuda/kernels/sequences.cuh"
#include "host_runtime/cuda/launch.cuh"

namespace csdsim::host::cuda {

inline unsigned blocks_of(std::size_t items, std::uint32_t a_block) {
  return static_cast<unsigned>((items + a_block - 1) / a_block);
}
/// Grid of (KV heads, sequences).
inline dim3 head_grid(const SequenceView& batch, const CacheShape& shape) { return dim3(shape.kv_heads, batch.count); }
/// Grid of (blocks of `a_block` items, KV heads, sequences).
inline dim3 item_grid(std::uint32_t items, std::uint32_t a_block, const SequenceView& batch, const CacheShape& shape) {
  return dim3(blocks_of(items, a_block), shape.kv_heads, batch.count);
}

}  // namespace csdsim::host::cuda
