#include "host_runtime/cuda/device.h"

#include "base/error.h"
#include "host_runtime/cuda/cuda_check.h"

namespace csdsim::host::cuda {

std::optional<DeviceInfo> present_device() {
  // Without a driver the call fails and leaves the count alone.
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    cudaGetLastError();
    return std::nullopt;
  }
  int device = 0;
  CSDSIM_CUDA(cudaGetDevice(&device));
  cudaDeviceProp properties{};
  CSDSIM_CUDA(cudaGetDeviceProperties(&properties, device));
  DeviceInfo info;
  info.name = properties.name;
  info.compute_capability = 10 * properties.major + properties.minor;
  info.multiprocessors = properties.multiProcessorCount;
  info.memory_bytes = properties.totalGlobalMem;
  info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
  info.shared_bytes_per_block = properties.sharedMemPerBlockOptin;
  int kilohertz = 0;
  if (cudaDeviceGetAttribute(&kilohertz, cudaDevAttrMemoryClockRate, device) == cudaSuccess) {
    // Two transfers a clock on every memory that such a GPU has.
    info.memory_bytes_per_second = 2.0 * 1000.0 * kilohertz * properties.memoryBusWidth / 8.0;
  }
  CSDSIM_CUDA(cudaDriverGetVersion(&info.driver_version));
  return info;
}

DeviceInfo require_device() {
  if (std::optional<DeviceInfo> info = present_device()) return *info;
  throw UserError("no CUDA GPU was found: the cuda backend and measured GPU times need one (--backend cpu does not)");
}

}  // namespace csdsim::host::cuda
