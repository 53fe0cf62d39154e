// An array as large as the drive that costs memory only where it was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/prefetch.h"
#include "ftl/core/zero_array.h"
#include "ftl/core/zero_pieces.h"

namespace csdsim::ftl {

/// An array of `size` zeros. It is divided into chunks, and a chunk gets memory when it is first written. Those that
/// are written one after the other follow each other in memory, wherever they lie in the array: what random writes
/// touch takes few pages of memory.
template <class T>
class SparseArray {
 public:
  explicit SparseArray(std::uint64_t size)
      : size_(size),
        chunks_((size + kMask) >> kShift),
        used_((size + kRangeMask) >> kRangeShift),
        memory_(kBytes, chunks_.size()) {}

  T get(std::uint64_t i) const {
    const T* chunk = chunks_[i >> kShift];
    return chunk == nullptr ? T{} : chunk[i & kMask];
  }
  T& operator[](std::uint64_t i) {
    T*& chunk = chunks_[i >> kShift];
    if (chunk == nullptr) [[unlikely]]
      make(i);
    return chunk[i & kMask];
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
    while (i < size_ && chunks_[i >> kShift] == nullptr)
      i = used_[i >> kRangeShift] ? (i | kMask) + 1 : (i | kRangeMask) + 1;
    return i;
  }
  void prefetch(std::uint64_t i) const {
    if (const T* chunk = chunks_[i >> kShift]) prefetch_line(chunk + (i & kMask));
  }

 private:
  static constexpr int kShift = 8;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kShift) - 1;
  static constexpr int kRangeShift = 18;  ///< of what next_written() passes over in one step
  static constexpr std::uint64_t kRangeMask = (std::uint64_t{1} << kRangeShift) - 1;
  /// With a line of the processor's caches more than it takes: pages are written to many planes in turn, whose elements
  /// would all compete for the same places of the caches.
  static constexpr std::size_t kBytes = (sizeof(T) << kShift) + 64;

  [[gnu::noinline]] void make(std::uint64_t i) {
    chunks_[i >> kShift] = static_cast<T*>(memory_.take());
    used_[i >> kRangeShift] = true;
  }

  std::uint64_t size_;
  ZeroArray<T*> chunks_;
  std::vector<bool> used_;  ///< ranges in which a chunk has memory
  ZeroPieces memory_;
};

}  // namespace csdsim::ftl
