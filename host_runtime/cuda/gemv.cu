#include "host_runtime/cuda/kernels/gemv.cuh"

#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

static_assert(kGemvRows == kGemvBatch);

namespace {

template <bool kGated, class T, class Out>
void launch_gemv(const Stream& stream, const DeviceInfo& device, const GemvArguments<T, Out>& a) {
  constexpr std::uint32_t kColumns = kGated ? kGemvTile / 2 : kGemvTile;
  if (device.compute_capability >= 80 && a.k % 32 == 0) {
    launch("gemv_tile", gemv_tile_kernel<T, Out, kGated>, dim3((a.n + kColumns - 1) / kColumns), 32 * kGemvWarps,
           kGemvSharedBytes, stream, a);
  } else {
    launch("gemv_row", gemv_row_kernel<T, Out, kGated>, dim3((a.n + 3) / 4), 128, 0, stream, a);
  }
}

}  // namespace

template <class T, class Out>
void gemv(const Stream& stream, const DeviceInfo& device, const T* x, const T* w, std::size_t rows, std::uint32_t n,
          std::uint32_t k, const Epilogue<T, Out>& epilogue, Out* out) {
  launch_gemv<false>(stream, device,
                     GemvArguments<T, Out>{x, w, epilogue.bias, epilogue.residual, out,
                                           static_cast<std::uint32_t>(rows), n, k, epilogue.relu});
}

template <class T>
void gated_gemv(const Stream& stream, const DeviceInfo& device, const T* x, const T* w, std::size_t rows,
                std::uint32_t n, std::uint32_t k, const T* bias, T* out) {
  launch_gemv<true>(stream, device,
                    GemvArguments<T, T>{x, w, bias, nullptr, out, static_cast<std::uint32_t>(rows), n, k, false});
}

#define CSDSIM_INSTANTIATE(T, Out)                                                                                    \
  template void gemv(const Stream&, const DeviceInfo&, const T*, const T*, std::size_t, std::uint32_t, std::uint32_t, \
                     const Epilogue<T, Out>&, Out*);

CSDSIM_INSTANTIATE(__half, __half)
CSDSIM_INSTANTIATE(__half, float)
CSDSIM_INSTANTIATE(__nv_bfloat16, __nv_bfloat16)
CSDSIM_INSTANTIATE(__nv_bfloat16, float)
template void gated_gemv(const Stream&, const DeviceInfo&, const __half*, const __half*, std::size_t, std::uint32_t,
                         std::uint32_t, const __half*, __half*);
template void gated_gemv(const Stream&, const DeviceInfo&, const __nv_bfloat16*, const __nv_bfloat16*, std::size_t,
                         std::uint32_t, std::uint32_t, const __nv_bfloat16*, __nv_bfloat16*);

}  // namespace csdsim::host::cuda
