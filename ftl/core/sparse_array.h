// An array as large as the drive that costs memory only where it was written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "ftl/core/zero_array.h"

namespace csdsim::ftl {

/// An array of `size` zeros. It is divided into segments, and a segment gets memory when it is first written.
template <class T>
class SparseArray {
 public:
  explicit SparseArray(std::uint64_t size) : size_(size), segments_((size + kMask) >> kShift) {}

  T get(std::uint64_t i) const {
    const T* segment = segments_[i >> kShift].data();
    return segment == nullptr ? T{} : segment[i & kMask];
  }
  T& operator[](std::uint64_t i) {
    ZeroArray<T>& segment = segments_[i >> kShift];
    if (segment.data() == nullptr) segment = ZeroArray<T>(std::min(kMask + 1, size_ - (i & ~kMask)));
    return segment[i & kMask];
  }
  /// The first element at or after `i` that may have been written; at or beyond the end if there is none.
  std::uint64_t next_written(std::uint64_t i) const {
    std::uint64_t segment = i >> kShift;
    if (segment >= segments_.size() || segments_[segment].data() != nullptr) return i;
    while (segment < segments_.size() && segments_[segment].data() == nullptr) ++segment;
    return segment << kShift;
  }
  void prefetch(std::uint64_t i) const {
    if (const T* segment = segments_[i >> kShift].data()) prefetch_line(segment + (i & kMask));
  }

 private:
  static constexpr int kShift = 18;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kShift) - 1;
  std::uint64_t size_;
  std::vector<ZeroArray<T>> segments_;
};

}  // namespace csdsim::ftl
