// Finds the earliest of a fixed set of times, each of which changes often.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/units.h"

namespace csdsim::nfc {

/// Argmin over n times in two levels: groups of eight (one cache line), and the minimum of each group. Changing a time
/// costs 8 + n/8 compares without a mispredicted branch. Equal times: the lower index.
class TwoLevelArgMin {
 public:
  /// Holds n >= 1 times, all SimTime::max() at first.
  explicit TwoLevelArgMin(std::size_t n) : groups_((n + kGroup - 1) / kGroup) {}

  void set(std::size_t index, SimTime time) {
    const std::size_t g = index / kGroup;
    groups_[g].times[index % kGroup] = time.ps;
    update(groups_[g]);
    find_group();
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
      update(group);
    }
    find_group();
  }

  SimTime time(std::size_t index) const { return {groups_[index / kGroup].times[index % kGroup]}; }
  SimTime min() const { return {groups_[group_].least}; }
  std::size_t arg_min() const { return group_ * kGroup + groups_[group_].index; }

 private:
  static constexpr std::size_t kGroup = 8;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

  struct Group {
    std::array<std::int64_t, kGroup> times;
    std::int64_t least = kNever;
    std::size_t index = 0;
    Group() { times.fill(kNever); }
  };

  void find_group() {
    group_ = 0;
    for (std::size_t i = 1; i < groups_.size(); ++i) group_ = groups_[i].least < groups_[group_].least ? i : group_;
  }

  /// Uses selects instead of branches: a branch predictor cannot guess which channel is next.
  static void update(Group& group) {
    std::int64_t least = group.times[0];
    std::size_t index = 0;
    for (std::size_t i = 1; i < kGroup; ++i) {
      const bool less = group.times[i] < least;
      least = less ? group.times[i] : least;
      index = less ? i : index;
    }
    group.least = least;
    group.index = index;
  }

  std::vector<Group> groups_;
  std::size_t group_ = 0;
};

}  // namespace csdsim::nfc
