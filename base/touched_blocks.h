// Counts the blocks of equal size that ranges touch.
#pragma once

#include <algorithm>
#include <cstdint>

namespace csdsim {

/// Blocks [i * size, (i + 1) * size), each counted once. Ranges ascend.
class TouchedBlocks {
 public:
  /// `size` is at least 1.
  explicit TouchedBlocks(std::uint64_t size) : size_(size) {}
  /// A range of at least one.
  void add(std::uint64_t first, std::uint64_t length) {
    const std::uint64_t begin = std::max(first / size_, next_), end = (first + length - 1) / size_ + 1;
    if (begin < end) count_ += end - begin;
    next_ = std::max(next_, end);
  }
  std::uint64_t count() const { return count_; }
  std::uint64_t size() const { return count_ * size_; }

 private:
  std::uint64_t size_;
  std::uint64_t next_ = 0;  ///< the first that may not be counted yet
  std::uint64_t count_ = 0;
};

}  // namespace csdsim
