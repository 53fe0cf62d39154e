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
    const T* segment = segments_[i >> kShift].first;
    return segment == nullptr ? T{} : segment[i & kMask];
  }
  T& operator[](std::uint64_t i) {
    Segment& segment = segments_[i >> kShift];
    if (segment.first == nullptr) [[unlikely]]
      make(i >> kShift);
    return segment.first[i & kMask];
  }
  /// Sets `count` elements from `i` on to `value` and the numbers that follow it.
  void set_run(std::uint64_t i, T value, std::uint32_t count) {
    for (T* to = nullptr; count > 0; --count, ++i) {
      if (to == nullptr || (i & kMask) == 0) to = &(*this)[i];
      *to++ = value++;
    }
  }
  /// The first element at or after `i` that may have been written; at or beyond the end if there is none.
  std::uint64_t next_written(std::uint64_t i) const {
    std::uint64_t segment = i >> kShift;
    if (segment >= segments_.size() || segments_[segment].first != nullptr) return i;
    while (segment < segments_.size() && segments_[segment].first == nullptr) ++segment;
    return segment << kShift;
  }
  void prefetch(std::uint64_t i) const {
    if (const T* segment = segments_[i >> kShift].first) prefetch_line(segment + (i & kMask));
  }

 private:
  static constexpr int kShift = 18;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kShift) - 1;
  static constexpr std::uint64_t kLine = 64 / sizeof(T);  ///< elements of a cache line
  static constexpr std::uint64_t kLines = 64;

  struct Segment {
    ZeroArray<T> memory;
    T* first = nullptr;
  };

  /// The first element is at another line of the processor's caches than that of most other segments: pages are written
  /// to many planes in turn, whose elements would all compete for the same lines.
  [[gnu::noinline]] void make(std::uint64_t s) {
    const std::uint64_t line = static_cast<std::uint32_t>(s * 0x9E3779B1U) >> 26;
    static_assert(kLines == 64, "the upper six bits of 32");
    Segment& segment = segments_[s];
    segment.memory = ZeroArray<T>(std::min(kMask + 1, size_ - (s << kShift)) + kLines * kLine);
    segment.first = segment.memory.data() + line * kLine;
  }

  std::uint64_t size_;
  std::vector<Segment> segments_;
};

}  // namespace csdsim::ftl
