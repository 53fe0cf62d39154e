// A priority queue for things that come nearly in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/units.h"

namespace csdsim::nfc {

/// Elements in the order of `T::before`, a strict total order. A sorted array with room at both ends: an element that
/// belongs at an end costs O(1), any other moves the shorter side. Bus requests and completions nearly always belong at
/// the end (with a constant tR the next data-out always does), where a binary heap pays log2(n) mispredicted branches.
template <class T>
class NearlySortedQueue {
 public:
  bool empty() const { return first_ == last_; }
  /// Precondition for front and pop: not empty.
  const T& front() const { return slots_[first_]; }
  /// When the first element is due, SimTime::max() for an empty queue. Without a branch, because the branch would be
  /// unpredictable.
  SimTime front_time() const {
    const bool none = empty();
    const SimTime at = slots_[none ? 0 : first_].at;
    return {none ? SimTime::max().ps : at.ps};
  }
  /// The element stays readable until the next insert.
  void pop() { ++first_; }

  /// Removes `element`, which is there; O(1) at the ends, else it moves the shorter side.
  void erase(const T& element) {
    const auto begin = slots_.begin();
    const auto place = std::lower_bound(begin + offset(first_), begin + offset(last_), element,
                                        [](const T& a, const T& b) { return a.before(b); });
    const auto index = static_cast<std::size_t>(place - begin);
    if (index - first_ < last_ - index) {
      std::move_backward(begin + offset(first_), place, place + 1);
      ++first_;
    } else {
      std::move(place + 1, begin + offset(last_), place);
      --last_;
    }
  }

  /// All elements are due so much later.
  void postpone(SimTime by) {
    for (std::size_t i = first_; i < last_; ++i) slots_[i].at += by;
  }

  void insert(const T& element) {
    if (last_ != capacity_ && (empty() || slots_[last_ - 1].before(element))) {
      slots_[last_++] = element;
    } else {
      insert_anywhere(element);
    }
  }

 private:
  static constexpr std::ptrdiff_t offset(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  [[gnu::noinline]] void insert_anywhere(const T& element) {
    if (last_ == capacity_ || first_ == 0) make_room();
    if (empty() || slots_[last_ - 1].before(element)) {
      slots_[last_++] = element;
      return;
    }
    if (last_ - first_ > 1 && slots_[last_ - 2].before(element)) {
      slots_[last_] = slots_[last_ - 1];
      slots_[last_ - 1] = element;
      ++last_;
      return;
    }
    const auto begin = slots_.begin();
    const auto place = std::lower_bound(begin + offset(first_), begin + offset(last_), element,
                                        [](const T& a, const T& b) { return a.before(b); });
    const auto index = static_cast<std::size_t>(place - begin);
    if (index - first_ < last_ - index) {
      std::move(begin + offset(first_), place, begin + offset(first_ - 1));
      --first_;
      slots_[index - 1] = element;
    } else {
      std::move_backward(place, begin + offset(last_), begin + offset(last_ + 1));
      ++last_;
      slots_[index] = element;
    }
  }

  /// Centres the elements and leaves more free slots on each side than there are elements: amortised O(1).
  void make_room() {
    const std::size_t size = last_ - first_;
    if (capacity_ < 3 * size + 2) {
      slots_.resize(std::max<std::size_t>(64, 2 * capacity_));
      capacity_ = slots_.size();
    }
    const std::size_t target = (capacity_ - size) / 2;
    const auto begin = slots_.begin();
    if (target < first_) {
      std::move(begin + offset(first_), begin + offset(last_), begin + offset(target));
    } else {
      std::move_backward(begin + offset(first_), begin + offset(last_), begin + offset(target + size));
    }
    first_ = target;
    last_ = target + size;
  }

  std::vector<T> slots_ = std::vector<T>(1);
  std::size_t capacity_ = 1;  ///< its size
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

}  // namespace csdsim::nfc
