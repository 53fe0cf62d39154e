// Host memory through which blocks pass between a drive and a GPU.
#pragma once

#include <deque>
#include <functional>
#include <utility>

#include "base/units.h"

namespace csdsim::host {

/// A bounded buffer. Who finds no room waits, first come, first served.
class Staging {
 public:
  explicit Staging(Bytes capacity) : free_(capacity), capacity_(capacity) {}

  Bytes capacity() const { return capacity_; }
  bool has(Bytes size) const { return waiting_.empty() && size <= free_; }

  /// Calls `then` with the room taken: at once, or when it is free. Precondition: size is at most the capacity.
  void take(Bytes size, std::function<void()> then) {
    if (!has(size)) {
      waiting_.emplace_back(size, std::move(then));
      return;
    }
    free_ = free_ - size;
    then();
  }

  void give_back(Bytes size) {
    free_ += size;
    while (!waiting_.empty() && waiting_.front().first <= free_) {
      auto [next, then] = std::move(waiting_.front());
      waiting_.pop_front();
      free_ = free_ - next;
      then();
    }
  }

 private:
  Bytes free_, capacity_;
  std::deque<std::pair<Bytes, std::function<void()>>> waiting_;
};

}  // namespace csdsim::host
