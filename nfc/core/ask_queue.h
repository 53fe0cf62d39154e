// Those that wait for a channel bus, in the order in which they asked.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/units.h"

namespace csdsim::nfc {

/// One plane's wish for the bus.
struct Ask {
  SimTime at;              ///< when it asks; may lie in the future
  std::uint64_t sequence;  ///< of the operation: earlier submitted, served first among equals
  std::uint32_t plane;
  constexpr bool before(const Ask& o) const { return at != o.at ? at < o.at : sequence < o.sequence; }
};

/// Asks sorted by (time, sequence). A sorted array with room at both ends, because asks come nearly in order: with a
/// constant tR data-outs are always the latest, and commands nearly always. Then insert and pop are O(1), where a
/// binary heap pays log2(n) mispredicted branches for each. Otherwise the shorter side is moved.
class AskQueue {
 public:
  /// Holds at most `capacity` asks.
  explicit AskQueue(std::uint32_t capacity) : slots_(4 * std::size_t{capacity} + 4) { recentre(); }

  bool empty() const { return first_ == last_; }
  const Ask& front() const { return slots_[first_]; }
  /// Time of the first ask, SimTime::max() if there is none.
  SimTime front_time() const { return empty() ? SimTime::max() : front().at; }

  void pop() { ++first_; }

  void insert(const Ask& ask) {
    if (empty() || slots_[last_ - 1].before(ask)) {
      if (last_ == slots_.size()) recentre();
      slots_[last_++] = ask;
      return;
    }
    if (first_ == 0 || last_ == slots_.size()) recentre();
    const auto begin = slots_.begin();
    const auto place = std::lower_bound(begin + offset(first_), begin + offset(last_), ask,
                                        [](const Ask& a, const Ask& b) { return a.before(b); });
    const auto index = static_cast<std::size_t>(place - begin);
    if (index - first_ < last_ - index) {
      std::move(begin + offset(first_), place, begin + offset(first_ - 1));
      --first_;
      slots_[index - 1] = ask;
    } else {
      std::move_backward(place, begin + offset(last_), begin + offset(last_ + 1));
      ++last_;
      slots_[index] = ask;
    }
  }

 private:
  static constexpr std::ptrdiff_t offset(std::size_t i) { return static_cast<std::ptrdiff_t>(i); }

  /// At least a quarter of the slots are free on both sides afterwards, so this is amortised over as many inserts.
  void recentre() {
    const std::size_t size = last_ - first_;
    const std::size_t target = (slots_.size() - size) / 2;
    const auto begin = slots_.begin();
    if (target < first_) {
      std::move(begin + offset(first_), begin + offset(last_), begin + offset(target));
    } else {
      std::move_backward(begin + offset(first_), begin + offset(last_), begin + offset(target + size));
    }
    first_ = target;
    last_ = target + size;
  }

  std::vector<Ask> slots_;
  std::size_t first_ = 0;
  std::size_t last_ = 0;
};

}  // namespace csdsim::nfc
