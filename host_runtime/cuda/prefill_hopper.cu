#include "host_runtime/cuda/prefill_hopper.h"

#include <cmath>
#include <numbers>
#include <string>
#include <type_traits>

#include "host_runtime/cuda/kernels/prefill_hopper.cuh"
#include "host_runtime/cuda/launch.cuh"

namespace csdsim::host::cuda {
namespace {

static_assert(kHopperHead == kHopperTile);

// Looks up the driver function through the runtime, because linking against the driver library fails on a machine
// without a GPU.
decltype(&cuTensorMapEncodeTiled) encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found{};
  CSDSIM_CUDA(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found));
  if (found != cudaDriverEntryPointSuccess) fail("cuTensorMapEncodeTiled", "the driver does not have it");
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

template <class T>
TensorMap map_of(const T* values, std::size_t rows, std::uint32_t heads, std::size_t row_stride) {
  static const auto encode = encoder();
  TensorMap map;
  const cuuint64_t sizes[3] = {kHopperHead, heads, rows};
  const cuuint64_t strides[2] = {kHopperHead * sizeof(T), row_stride * sizeof(T)};
  const cuuint32_t box[3] = {64, 1, kHopperTile}, steps[3] = {1, 1, 1};
  const auto type = std::is_same_v<T, __half> ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const CUresult status =
      encode(&map, type, 3, const_cast<T*>(values), sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) fail("cuTensorMapEncodeTiled", "status " + std::to_string(status));
  return map;
}

}  // namespace

template <class T>
void prefill_hopper(const Stream& stream, const PrefillQuery<T>& q) {
  const HopperArguments<T> arguments{q.out, q.starts, q.out_stride, q.heads / q.kv_heads,
                                     std::numbers::log2e_v<float> / std::sqrt(static_cast<float>(kHopperHead))};
  launch("prefill_hopper", prefill_hopper_kernel<T>,
         dim3((q.longest + kHopperTile - 1) / kHopperTile, q.heads, static_cast<unsigned>(q.sequences)), kHopperThreads,
         kHopperSharedBytes, stream, map_of(q.q, q.rows, q.heads, q.q_stride),
         map_of(q.k, q.rows, q.kv_heads, q.kv_stride), map_of(q.v, q.rows, q.kv_heads, q.kv_stride), arguments);
}

template void prefill_hopper(const Stream&, const PrefillQuery<__half>&);
template void prefill_hopper(const Stream&, const PrefillQuery<__nv_bfloat16>&);

}  // namespace csdsim::host::cuda
