// Allocates command buffers in a region of physical memory.
#pragma once

#include <bit>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "nvme_if/spec/types.h"

namespace csdsim::platform {

/// Allocates page-aligned buffers. Sizes are rounded up to a power of two and freed buffers are reused by size, because
/// a run needs only a few sizes.
class BufferPool {
 public:
  /// `name` is the name of the memory in messages.
  BufferPool(std::string name, nvme::Segment memory)
      : name_(std::move(name)), memory_(memory), next_(memory.address.value) {}

  /// Throws UserError when the memory is full.
  nvme::Segment allocate(Bytes size) {
    const std::uint64_t rounded = std::bit_ceil(size.value < 4096 ? 4096 : size.value);
    std::vector<std::uint64_t>& free = free_[rounded];
    std::uint64_t address = next_;
    if (!free.empty()) {
      address = free.back();
      free.pop_back();
    } else if (memory_.address.value + memory_.length.value - next_ < rounded) {
      throw UserError(name_ + ": no room for another command buffer");
    } else {
      next_ += rounded;
    }
    return {nvme::PhysicalAddress{address}, size};
  }

  void release(nvme::Segment buffer) {
    free_[std::bit_ceil(buffer.length.value < 4096 ? 4096 : buffer.length.value)].push_back(buffer.address.value);
  }

 private:
  std::string name_;
  nvme::Segment memory_;
  std::uint64_t next_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_;
};

}  // namespace csdsim::platform
