#include "host_runtime/cuda/kernels/gemv.cuh"

#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

static_assert(kGemvRows == kGemvBatch);

template <class T, class Out>
void gemv(const Stream& stream, const DeviceInfo& device, const T* x, const T* w, std::size_t rows, std::uint32_t n,
          std::uint32_t k, const Epilogue<T, Out>& epilogue, Out* out) {
  const GemvArguments<T, Out> arguments{x, w, epilogue.bias, epilogue.residual, out, static_cast<std::uint32_t>(rows),
                                        n, k, epilogue.relu};
  if (device.compute_capability >= 80 && k % 32 == 0) {
    launch("gemv_tile", gemv_tile_kernel<T, Out>, dim3((n + kGemvTile - 1) / kGemvTile), 32 * kGemvWarps,
           kGemvSharedBytes, stream, arguments);
  } else {
    launch("gemv_row", gemv_row_kernel<T, Out>, dim3((n + 3) / 4), 128, 0, stream, arguments);
  }
}

#define CSDSIM_INSTANTIATE(T, Out)                                                                                    \
  template void gemv(const Stream&, const DeviceInfo&, const T*, const T*, std::size_t, std::uint32_t, std::uint32_t, \
                     const Epilogue<T, Out>&, Out*);

CSDSIM_INSTANTIATE(__half, __half)
CSDSIM_INSTANTIATE(__half, float)
CSDSIM_INSTANTIATE(__nv_bfloat16, __nv_bfloat16)
CSDSIM_INSTANTIATE(__nv_bfloat16, float)

}  // namespace csdsim::host::cuda
