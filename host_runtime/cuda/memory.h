// Device memory from a pool, and pinned host memory.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

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

/// Memory in the order of a stream (cudaMallocAsync): a block is there for work that is put into the stream after
/// allocate(), and may be used again by what follows release(). Work of other streams has to wait for the stream. What
/// was released is kept for later requests. In work that the stream records, blocks belong to the graph.
class DevicePool {
 public:
  /// `stream` must outlive the pool and its blocks.
  explicit DevicePool(const Stream& stream);

  /// Aligned to 256; null for no bytes. CudaError if the device has no such memory.
  void* allocate(std::size_t bytes);
  void release(void* block) noexcept;

 private:
  const Stream& stream_;
  std::unique_ptr<std::remove_pointer_t<cudaMemPool_t>, Destroy<cudaMemPoolDestroy>> handle_;
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
  std::size_t size() const { return count_; }

 private:
  std::unique_ptr<T, Destroy<cudaFreeHost>> data_;
  std::size_t count_ = 0;
};

}  // namespace csdsim::host::cuda
