#include "host_runtime/cuda/memory.h"

#include <cstdint>

namespace csdsim::host::cuda {

DevicePool::DevicePool(const Stream& stream) : stream_(stream) {
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location.type = cudaMemLocationTypeDevice;
  CSDSIM_CUDA(cudaGetDevice(&properties.location.id));
  cudaMemPool_t pool = nullptr;
  CSDSIM_CUDA(cudaMemPoolCreate(&pool, &properties));
  handle_.reset(pool);
  // Without this the memory would go back to the driver whenever the stream is waited for.
  std::uint64_t kept_bytes = UINT64_MAX;
  CSDSIM_CUDA(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &kept_bytes));
}

void* DevicePool::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  void* block = nullptr;
  CSDSIM_CUDA(cudaMallocFromPoolAsync(&block, bytes, handle_.get(), stream_.get()));
  return block;
}

void DevicePool::release(void* block) noexcept { cudaFreeAsync(block, stream_.get()); }

}  // namespace csdsim::host::cuda
