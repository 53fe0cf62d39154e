// A first-in first-out queue that keeps its memory.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

namespace csdsim {

/// Unlike std::deque it allocates only to hold more than it ever did. Elements must be default constructible; a popped
/// one stays in its slot until the slot is used again.
template <class T>
class RingQueue {
 public:
  bool empty() const { return size_ == 0; }
  std::size_t size() const { return size_; }

  /// Precondition of front, back, operator[] and pop_front: there is such an element.
  T& front() { return slots_[first_]; }
  const T& front() const { return slots_[first_]; }
  T& back() { return (*this)[size_ - 1]; }
  T& operator[](std::size_t i) { return slots_[(first_ + i) & (slots_.size() - 1)]; }

  /// The new last element, with whatever its slot held.
  T& extend() {
    if (size_ == slots_.size()) grow();
    return slots_[(first_ + size_++) & (slots_.size() - 1)];
  }
  T& push_back(T element) { return extend() = std::move(element); }
  void pop_front() {
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }
  void clear() { first_ = size_ = 0; }

 private:
  void grow() {
    std::vector<T> larger(slots_.empty() ? 16 : 2 * slots_.size());
    for (std::size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  ///< a power of two of them
  std::size_t first_ = 0;
  std::size_t size_ = 0;
};

}  // namespace csdsim
