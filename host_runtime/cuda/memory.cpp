#include "host_runtime/cuda/memory.h"

namespace csdsim::host::cuda {

DevicePool::~DevicePool() { trim(); }

void DevicePool::trim() noexcept {
  for (auto& [size, blocks] : free_) {
    for (void* block : blocks) cudaFree(block);
    reserved_ -= size * blocks.size();
    blocks.clear();
  }
}

void* DevicePool::allocate(std::size_t bytes) {
  const std::scoped_lock lock(mutex_);
  const std::size_t size = size_class(bytes);
  std::vector<void*>& kept = free_[size];
  void* block = nullptr;
  if (!kept.empty()) {
    block = kept.back();
    kept.pop_back();
  } else {
    if (cudaMalloc(&block, size) != cudaSuccess) {
      cudaGetLastError();
      trim();
      CSDSIM_CUDA(cudaMalloc(&block, size));
    }
    reserved_ += size;
  }
  used_.emplace(block, size);
  in_use_ += size;
  return block;
}

void DevicePool::release(void* block) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto it = used_.find(block);
  free_[it->second].push_back(block);
  in_use_ -= it->second;
  used_.erase(it);
}

}  // namespace csdsim::host::cuda
