// A priority queue for things that come nearly in order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <vector>

#include "base/units.h"

namespace csdsim {

/// A queue ordered by `T::before`, a strict total order that compares the times `T::at` first. It is a sorted array
/// with free slots at both ends. Insertion at an end takes O(1); any other moves the elements on the shorter side. Bus
/// requests and completions are nearly always inserted at the end (with a constant tR the next data-out always is),
/// where a binary heap has log2(n) mispredicted branches. The array ends with a sentinel at SimTime::max(), so that
/// front_time() needs no branch, which would be unpredictable.
template <class T>
class NearlySortedQueue {
 public:
  NearlySortedQueue() { last_->at = SimTime::max(); }
  NearlySortedQueue(const NearlySortedQueue&) = delete;
  NearlySortedQueue& operator=(const NearlySortedQueue&) = delete;

  bool empty() const { return first_ == last_; }
  /// Precondition for pop: not empty. `at` of the front of an empty queue is SimTime::max().
  const T& front() const { return *first_; }
  /// When the first element is due, SimTime::max() for an empty queue.
  SimTime front_time() const { return first_->at; }
  /// The element stays readable until the next insert.
  void pop() { ++first_; }
  void clear() { first_ = last_; }

  /// Removes `element`, which is there; O(1) at the ends, else it moves the shorter side.
  void erase(const T& element) {
    T* const place = place_of(element);
    if (place - first_ < last_ - place) {
      std::move_backward(first_, place, place + 1);
      ++first_;
    } else {
      std::move(place + 1, last_ + 1, place);
      --last_;
    }
  }

  /// All elements are due so much later.
  void postpone(SimTime by) {
    for (T* element = first_; element != last_; ++element) element->at += by;
  }

  void insert(const T& element) {
    // In an empty queue, last_[-1] is an element that was popped before. Either path is correct then.
    if (last_ != end_ && last_[-1].before(element))
      append(element);
    else
      insert_anywhere(element);
  }

 private:
  void append(const T& element) {
    *last_ = element;
    (++last_)->at = SimTime::max();
  }

  /// The first element that is not before `element`.
  T* place_of(const T& element) const {
    return std::lower_bound(first_, last_, element, [](const T& a, const T& b) { return a.before(b); });
  }

  /// Takes the element by value, so that insert() can keep it in registers.
  [[gnu::noinline]] void insert_anywhere(const T element) {
    if (last_ == end_ || first_ == slots_.data() + 1) make_room();
    if (empty() || last_[-1].before(element)) return append(element);
    T* const place = last_ - first_ > 1 && last_[-2].before(element) ? last_ - 1 : place_of(element);
    if (place - first_ < last_ - place) {
      std::move(first_, place, first_ - 1);
      --first_;
      place[-1] = element;
    } else {
      std::move_backward(place, last_ + 1, last_ + 2);
      ++last_;
      *place = element;
    }
  }

  /// Centres the elements and leaves more free slots on each side than there are elements: amortised O(1).
  void make_room() {
    const std::ptrdiff_t size = last_ - first_;
    const std::ptrdiff_t first = first_ - slots_.data();
    if (std::ssize(slots_) < 3 * size + 6) slots_.resize(std::max<std::size_t>(64, 2 * slots_.size()));
    T* const from = slots_.data() + first;
    T* const to = slots_.data() + (std::ssize(slots_) - size) / 2;
    if (to < from)
      std::move(from, from + size + 1, to);
    else
      std::move_backward(from, from + size + 1, to + size + 1);
    first_ = to;
    last_ = to + size;
    end_ = slots_.data() + slots_.size() - 1;
  }

  std::vector<T> slots_ = std::vector<T>(2);
  T* first_ = slots_.data() + 1;
  T* last_ = first_;  ///< the element behind the last one, which is never due
  T* end_ = first_;   ///< the last slot
};

}  // namespace csdsim
