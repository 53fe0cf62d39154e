// An array as large as the drive that costs memory only where it was written.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace csdsim::ftl {

/// `size` zeros. Segments come from calloc, so that the operating system commits the pages of a segment one by one when
/// they are first written; a segment that was never written does not exist.
template <class T>
class SparseArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>, "zero bytes are a T");

 public:
  explicit SparseArray(std::uint64_t size) : size_(size), segments_((size + kMask) >> kShift) {}

  T get(std::uint64_t i) const {
    const T* segment = segments_[i >> kShift].get();
    return segment == nullptr ? T{} : segment[i & kMask];
  }
  T& operator[](std::uint64_t i) {
    auto& segment = segments_[i >> kShift];
    if (segment == nullptr) {
      segment.reset(static_cast<T*>(std::calloc(std::min(kMask + 1, size_ - (i & ~kMask)), sizeof(T))));
      if (segment == nullptr) throw std::bad_alloc();
    }
    return segment.get()[i & kMask];
  }
  /// The first element at or after `i` that may have been written; at or beyond the end if there is none.
  std::uint64_t next_written(std::uint64_t i) const {
    std::uint64_t segment = i >> kShift;
    if (segment >= segments_.size() || segments_[segment] != nullptr) return i;
    while (segment < segments_.size() && segments_[segment] == nullptr) ++segment;
    return segment << kShift;
  }
  void prefetch(std::uint64_t i) const {
    if (const T* segment = segments_[i >> kShift].get()) __builtin_prefetch(segment + (i & kMask));
  }

 private:
  static constexpr int kShift = 18;
  static constexpr std::uint64_t kMask = (std::uint64_t{1} << kShift) - 1;
  struct Free {
    void operator()(T* p) const { std::free(p); }
  };
  std::uint64_t size_;
  std::vector<std::unique_ptr<T, Free>> segments_;
};

}  // namespace csdsim::ftl
