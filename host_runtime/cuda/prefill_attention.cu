#include <cmath>

#include "host_runtime/cuda/kernels/prefill_attention.cuh"
#include "host_runtime/cuda/launch.cuh"
#include "host_runtime/cuda/operators.h"
#include "host_runtime/cuda/prefill_hopper.h"

namespace csdsim::host::cuda {
namespace {

template <class T, std::uint32_t D>
void launch_tiles(const Stream& stream, const PrefillQuery<T>& q, const PrefillArguments<T>& arguments) {
  launch("prefill_tile", prefill_tile_kernel<T, D>,
         dim3((q.longest + kPrefillTile - 1) / kPrefillTile, q.heads, static_cast<unsigned>(q.sequences)),
         32 * kPrefillWarps, prefill_shared_bytes<D>(), stream, arguments);
}

}  // namespace

bool supports_prefill(PrefillKernel kernel, const DeviceInfo& device, std::uint32_t d) {
  switch (kernel) {
    case PrefillKernel::automatic:
    case PrefillKernel::generic:
      return d <= 256;
    case PrefillKernel::tile:
      return device.compute_capability >= 80 && d <= 128 && d % 8 == 0;
    case PrefillKernel::hopper:
      return device.compute_capability == 90 && d == kHopperHead;
  }
  return false;
}

template <class T>
void prefill_attention(const Stream& stream, const DeviceInfo& device, const PrefillQuery<T>& q, PrefillKernel kernel) {
  if (kernel == PrefillKernel::automatic) {
    for (const PrefillKernel better : {PrefillKernel::tile, PrefillKernel::hopper}) {
      if (supports_prefill(better, device, q.d)) kernel = better;
    }
  }
  if (!supports_prefill(kernel, device, q.d)) fail("prefill_attention", "no such kernel for this head and GPU");
  if (kernel == PrefillKernel::hopper) return prefill_hopper(stream, q);
  const PrefillArguments<T> arguments{q.q,
                                      q.k,
                                      q.v,
                                      q.out,
                                      q.starts,
                                      q.q_stride,
                                      q.kv_stride,
                                      q.out_stride,
                                      q.heads / q.kv_heads,
                                      q.d,
                                      1.0f / std::sqrt(static_cast<float>(q.d))};
  if (kernel != PrefillKernel::tile) {
    launch("prefill_generic", prefill_generic_kernel<T>, dim3(q.longest, q.heads, static_cast<unsigned>(q.sequences)),
           32 * kDecodeWarps, kDecodeWarps * (q.d + 2) * sizeof(float), stream, arguments);
  } else if (q.d <= 64) {
    launch_tiles<T, 64>(stream, q, arguments);
  } else {
    launch_tiles<T, 128>(stream, q, arguments);
  }
}

template <class T>
void locate_rows(const Stream& stream, const PrefillQuery<T>& q, std::int64_t* offsets, std::int32_t* lengths) {
  constexpr unsigned threads = 128;
  const auto sequences = static_cast<std::uint32_t>(q.sequences);
  launch("locate_rows", locate_rows_kernel, dim3(sequences / threads + 1), threads, 0, stream, q.starts, sequences,
         q.q_stride, q.kv_stride, q.out_stride, offsets, lengths);
}

template void locate_rows(const Stream&, const PrefillQuery<__half>&, std::int64_t*, std::int32_t*);
template void locate_rows(const Stream&, const PrefillQuery<__nv_bfloat16>&, std::int64_t*, std::int32_t*);
template void prefill_attention(const Stream&, const DeviceInfo&, const PrefillQuery<__half>&, PrefillKernel);
template void prefill_attention(const Stream&, const DeviceInfo&, const PrefillQuery<__nv_bfloat16>&, PrefillKernel);

}  // namespace csdsim::host::cuda
