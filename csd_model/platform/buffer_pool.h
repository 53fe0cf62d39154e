// Command buffers in a region of physical memory.
#pragma once

#include <bit>
#include <map>
#include <vector>

#include "base/error.h"
#include "nvme_if/spec/types.h"

namespace csd_model {

/// Page-aligned buffers, rounded up to a power of two and reused by size: a run needs few sizes, again and again.
class BufferPool {
 public:
  explicit BufferPool(csdsim::nvme::Segment memory) : memory_(memory), next_(memory.address.value) {}

  /// UserError when the memory is full.
  csdsim::nvme::Segment allocate(csdsim::Bytes size) {
    const std::uint64_t rounded = std::bit_ceil(size.value < 4096 ? 4096 : size.value);
    std::vector<std::uint64_t>& free = free_[rounded];
    std::uint64_t address = next_;
    if (!free.empty()) {
      address = free.back();
      free.pop_back();
    } else if (memory_.address.value + memory_.length.value - next_ < rounded) {
      throw csdsim::UserError("GPU memory: no room for another command buffer");
    } else {
      next_ += rounded;
    }
    return {csdsim::nvme::PhysicalAddress{address}, size};
  }

  void release(csdsim::nvme::Segment buffer) {
    free_[std::bit_ceil(buffer.length.value < 4096 ? 4096 : buffer.length.value)].push_back(buffer.address.value);
  }

 private:
  csdsim::nvme::Segment memory_;
  std::uint64_t next_;
  std::map<std::uint64_t, std::vector<std::uint64_t>> free_;
};

}  // namespace csd_model
