// A first-in first-out queue that keeps its memory.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

namespace csdsim {

/// Unlike std::deque it allocates only when it must hold more elements than ever before. Elements must be default
/// constructible; a popped one stays in its slot until the slot is used again.
template <class T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// Precondition of front, back, operator[] and pop_front: the element exists.
  T& front() { return slots_[first_]; }
  const T& front() const { return slots_[first_]; }
  T& back() { return (*this)[size_ - 1]; }
  T& operator[](std::size_t i) { return slots_[(first_ + i) & mask_]; }

  /// Appends an element and returns it. It still has the value that its slot held before.
  [[gnu::always_inline]] T& extend() {
    if (size_ == capacity_) grow();
    return slots_[(first_ + size_++) & mask_];
  }
  T& push_back(T element) { return extend() = std::move(element); }
  void pop_front() {
    first_ = (first_ + 1) & mask_;
    --size_;
  }
  void clear() { first_ = size_ = 0; }

 private:
  [[gnu::noinline]] void grow() {
    const std::size_t larger = capacity_ == 0 ? 16 : 2 * capacity_;
    auto slots = std::make_unique<T[]>(larger);
    for (std::size_t i = 0; i < size_; ++i) slots[i] = std::move((*this)[i]);
    slots_ = std::move(slots);
    capacity_ = larger;
    mask_ = larger - 1;
    first_ = 0;
  }

  std::unique_ptr<T[]> slots_;
  std::size_t capacity_ = 0;  ///< 0 or a power of two
  std::size_t mask_ = 0;      ///< capacity_ - 1
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace csdsim
