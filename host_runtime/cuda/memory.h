// Device memory from a pool, and pinned host memory.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "host_runtime/cuda/stream.h"

namespace csdsim::host::cuda {

class DevicePool;

/// A piece of device memory that goes back to its pool. Elements have no constructor run on them.
template <class T = std::byte>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DevicePool& pool, std::size_t count);
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
    return *this;
  }
  ~DeviceBuffer();

  T* data() const { return data_; }
  std::size_t size() const { return count_; }

 private:
  DevicePool* pool_ = nullptr;
  T* data_ = nullptr;
  std::size_t count_ = 0;
};

/// Keeps freed blocks for the next request of the same size class, so that steady work allocates nothing. A
/// block may be handed out again while the GPU still works on its former contents: all work on a pool's memory must
/// therefore go to one stream, whose order makes that safe.
class DevicePool {
 public:
  DevicePool() = default;
  DevicePool(const DevicePool&) = delete;
  DevicePool& operator=(const DevicePool&) = delete;
  ~DevicePool();

  /// At least `bytes`, aligned to 256. CudaError if the device has no such memory even after the kept blocks were
  /// freed.
  void* allocate(std::size_t bytes);
  void release(void* block) noexcept;

  std::size_t bytes_in_use() const { return in_use_; }
  /// Bytes taken from the device: in use and kept.
  std::size_t bytes_reserved() const { return reserved_; }

  /// Size of the block for a request of `bytes`: up to 1 MiB the next power of two from 256, above that whole MiB.
  static constexpr std::size_t size_class(std::size_t bytes) {
    constexpr std::size_t kLarge = std::size_t{1} << 20;
    if (bytes > kLarge) return (bytes + kLarge - 1) / kLarge * kLarge;
    std::size_t size = 256;
    while (size < bytes) size *= 2;
    return size;
  }

 private:
  void trim() noexcept;

  std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;
  std::map<void*, std::size_t> used_;
  std::size_t in_use_ = 0;
  std::size_t reserved_ = 0;
};

template <class T>
DeviceBuffer<T>::DeviceBuffer(DevicePool& pool, std::size_t count)
    : pool_(&pool), data_(static_cast<T*>(pool.allocate(count * sizeof(T)))), count_(count) {}

template <class T>
DeviceBuffer<T>::~DeviceBuffer() {
  if (data_ != nullptr) pool_->release(data_);
}

template <class T>
void copy_to_device(const Stream& stream, std::span<const T> from, T* to) {
  CSDSIM_CUDA(cudaMemcpyAsync(to, from.data(), from.size_bytes(), cudaMemcpyHostToDevice, stream.get()));
}

/// Returns when the values have arrived.
template <class T>
void copy_to_host(const Stream& stream, const T* from, std::span<T> to) {
  CSDSIM_CUDA(cudaMemcpyAsync(to.data(), from, to.size_bytes(), cudaMemcpyDeviceToHost, stream.get()));
  stream.synchronise();
}

/// Pinned host memory: copies to and from it are asynchronous and run at full speed.
template <class T>
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t count) : count_(count) {
    void* data = nullptr;
    CSDSIM_CUDA(cudaMallocHost(&data, count * sizeof(T)));
    data_.reset(static_cast<T*>(data));
  }
  std::span<T> span() const { return {data_.get(), count_}; }
  T* data() const { return data_.get(); }

 private:
  std::unique_ptr<T, Destroy<cudaFreeHost>> data_;
  std::size_t count_ = 0;
};

}  // namespace csdsim::host::cuda
