// Launches kernels and reports their errors.
#pragma once

#include "host_runtime/cuda/stream.h"

namespace csdsim::host::cuda {

inline constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;  ///< shared memory available without a request

#ifndef CSDSIM_CUDA_EMULATION
template <class... Parameters, class... Arguments>
void start_kernel(void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
                  const Stream& stream, const Arguments&... arguments) {
  kernel<<<grid, threads, shared_bytes, stream.get()>>>(arguments...);
}
#endif

/// Requests `bytes` of dynamic shared memory per block. Call it before a launch, and before an occupancy query.
template <class... Parameters>
void allow_shared_memory(const char* name, void (*kernel)(Parameters...), std::size_t bytes) {
  if (bytes <= kPlainSharedBytes) return;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)), name);
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, unsigned threads, std::size_t shared_bytes,
            const Stream& stream, const Arguments&... arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  allow_shared_memory(name, kernel, shared_bytes);
  start_kernel(kernel, grid, threads, shared_bytes, stream, arguments...);
  check_launch(name);
}

}  // namespace csdsim::host::cuda
