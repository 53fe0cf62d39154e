// Device memory by slot that grows with the number of slots and the tokens of a slot.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "host_runtime/cuda/memory.h"

namespace csdsim::host::cuda {

/// [slots][lists][capacity][width]. Contents stay when it grows; new elements are unspecified.
template <class T>
class SlotArray {
 public:
  SlotArray() = default;
  SlotArray(std::size_t lists, std::size_t width) : lists_(lists), width_(width) {}

  /// Grows to at least `slots` slots and exactly this capacity, which never decreases.
  void reserve(const Stream& stream, DevicePool& pool, std::size_t slots, std::size_t capacity) {
    if (slots == slots_ && capacity == capacity_) return;
    DeviceBuffer<T> grown(pool, slots * lists_ * capacity * width_);
    if (values_.size() > 0) {
      const std::size_t row = capacity_ * width_ * sizeof(T);
      CSDSIM_CUDA(cudaMemcpy2DAsync(grown.data(), capacity * width_ * sizeof(T), values_.data(), row, row,
                                    slots_ * lists_, cudaMemcpyDeviceToDevice, stream.get()));
    }
    values_ = std::move(grown);
    slots_ = slots;
    capacity_ = capacity;
  }

  T* data() const { return values_.data(); }

 private:
  std::size_t lists_ = 0, width_ = 0, slots_ = 0, capacity_ = 0;
  DeviceBuffer<T> values_;
};

/// `count` results of make(): such arrays can be moved but not copied.
template <class Make>
auto made(std::size_t count, Make make) {
  std::vector<decltype(make())> all;
  for (std::size_t i = 0; i < count; ++i) all.push_back(make());
  return all;
}

}  // namespace csdsim::host::cuda
