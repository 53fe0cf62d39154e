// Numbered slots for things in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace csdsim {

/// Slots are numbered from 0, and the one that came free last is taken first: the numbers serve as tags that stay
/// small. A slot keeps its content, and the memory that it holds, until it is assigned to again. Taking a slot
/// invalidates references to others.
template <class T>
class SlotPool {
 public:
  std::uint32_t take() {
    if (free_.empty()) {
      slots_.emplace_back();
      return static_cast<std::uint32_t>(slots_.size() - 1);
    }
    const std::uint32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  /// Takes a slot and stores `value` in it.
  std::uint32_t put(T value) {
    const std::uint32_t slot = take();
    slots_[slot] = std::move(value);
    return slot;
  }
  /// Precondition: `slot` is taken.
  void give_back(std::uint64_t slot) { free_.push_back(static_cast<std::uint32_t>(slot)); }
  /// Gives a slot back and returns what it held. Precondition: `slot` is taken.
  T release(std::uint64_t slot) {
    give_back(slot);
    return std::move(slots_[slot]);
  }

  T& operator[](std::uint64_t slot) { return slots_[slot]; }
  const T& operator[](std::uint64_t slot) const { return slots_[slot]; }
  std::size_t in_use() const { return slots_.size() - free_.size(); }

 private:
  std::vector<T> slots_;
  std::vector<std::uint32_t> free_;
};

}  // namespace csdsim
