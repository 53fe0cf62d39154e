// Parts of writes that wait for room in the write buffer, in their order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/ring_queue.h"
#include "base/units.h"

namespace csdsim::csd_model {

/// What a write has of a page of the flash, or of a word line.
struct WritePart {
  std::uint32_t write = 0;  ///< number of the write
  Bytes begin;              ///< in the command's buffer
  Bytes length;
  Bytes end() const { return begin + length; }
};

class WaitingParts {
 public:
  bool empty() const { return parts_.empty(); }
  void push(const WritePart& part) { parts_.push_back(part); }
  /// Precondition: one waits.
  WritePart take() {
    const WritePart first = parts_.front();
    parts_.pop_front();
    return first;
  }
  /// Removes the first ones. Precondition: so many wait.
  void drop(std::uint32_t count) {
    for (; count > 0; --count) parts_.pop_front();
  }
  void clear() { parts_.clear(); }

  /// How many of the first ones, at most `most`, go on where `part` ends, each with as many bytes.
  std::uint32_t alike_behind(const WritePart& part, std::uint64_t most) {
    std::uint32_t count = 0;
    for (Bytes begin = part.end(); count < std::min<std::uint64_t>(most, parts_.size());
         begin += part.length, ++count) {
      const WritePart& next = parts_[count];
      if (next.write != part.write || next.begin != begin || next.length != part.length) break;
    }
    return count;
  }

  /// Call it when so many have been taken: `fetch` gets as many of those that will be, joined where they follow each
  /// other.
  template <class Fetch>
  void look_ahead(std::uint32_t taken, Fetch fetch) {
    constexpr std::size_t kAhead = 24;  // parts: those of a word line have their turn at the same time
    const std::size_t end = std::min(parts_.size(), kAhead + 1);
    for (std::size_t i = kAhead + 1 - std::min<std::size_t>(taken, kAhead + 1); i < end;) {
      WritePart joined = parts_[i];
      for (++i; i < end && parts_[i].write == joined.write && parts_[i].begin == joined.end(); ++i)
        joined.length += parts_[i].length;
      fetch(joined);
    }
  }

 private:
  RingQueue<WritePart> parts_;
};

}  // namespace csdsim::csd_model
