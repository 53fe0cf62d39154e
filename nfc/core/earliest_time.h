// Finds the earliest of a fixed set of times, each of which changes often.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.h"

namespace csdsim::nfc {

/// Minimum of n times in two levels: groups of eight (one cache line), and the minimum of each group. Changing a time
/// costs 8 + n/8 compares without a mispredicted branch.
class TwoLevelMin {
 public:
  /// Holds n >= 1 times, all SimTime::max() at first.
  explicit TwoLevelMin(std::size_t n) : groups_((n + kGroup - 1) / kGroup) {}

  void set(std::size_t index, SimTime time) {
    Group& group = groups_[index / kGroup];
    group.times[index % kGroup] = time.ps;
    group.find_least();
    find_least();
  }

  /// Replaces every time before `bound` by the result of `next(index)`, in the order of indices.
  template <class Next>
  void advance(SimTime bound, Next&& next) {
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (group.least >= bound.ps) continue;
      std::uint32_t due = 0;
      for (std::size_t i = 0; i < kGroup; ++i) due |= static_cast<std::uint32_t>(group.times[i] < bound.ps) << i;
      for (; due != 0; due &= due - 1) {
        const auto i = static_cast<std::size_t>(std::countr_zero(due));
        group.times[i] = next(g * kGroup + i).ps;
      }
      group.find_least();
    }
    find_least();
  }

  SimTime time(std::size_t index) const { return {groups_[index / kGroup].times[index % kGroup]}; }
  SimTime min() const { return {least_}; }

 private:
  static constexpr std::size_t kGroup = 8;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Group {
    std::array<std::int64_t, kGroup> times;
    std::int64_t least = kNever;
    Group() { times.fill(kNever); }

    /// Uses selects instead of branches: a branch predictor cannot guess which channel is next.
    void find_least() {
      least = times[0];
      for (std::size_t i = 1; i < kGroup; ++i) least = std::min(least, times[i]);
    }
  };

  void find_least() {
    least_ = kNever;
    for (const Group& group : groups_) least_ = std::min(least_, group.least);
  }

  std::vector<Group> groups_;
  std::int64_t least_ = kNever;
};

}  // namespace csdsim::nfc
