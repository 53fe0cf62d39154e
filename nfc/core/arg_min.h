// The earliest of a fixed set of times, each of which changes often.
#pragma once

#include <algorithm>
#include <array>
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
  /// All times start at SimTime::max().
  explicit TwoLevelArgMin(std::size_t n) : groups_((n + kGroup - 1) / kGroup, Group{}), least_(groups_.size(), kNever) {
    for (auto& group : groups_) group.fill(kNever);
  }

  void set(std::size_t index, SimTime time) {
    const std::size_t g = index / kGroup;
    groups_[g][index % kGroup] = time.ps;
    std::int64_t least = groups_[g][0];
    for (std::size_t i = 1; i < kGroup; ++i) least = std::min(least, groups_[g][i]);
    least_[g] = least;
    min_ = least_[0];
    min_group_ = 0;
    for (std::size_t i = 1; i < least_.size(); ++i) {
      min_group_ = least_[i] < min_ ? i : min_group_;
      min_ = std::min(min_, least_[i]);
    }
  }

  SimTime min() const { return {min_}; }

  /// Index of the minimum. Precondition: n is not 0.
  std::size_t arg_min() const {
    const Group& group = groups_[min_group_];
    std::size_t index = 0;
    while (group[index] != min_) ++index;
    return min_group_ * kGroup + index;
  }

 private:
  static constexpr std::size_t kGroup = 8;
  static constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();
  using Group = std::array<std::int64_t, kGroup>;

  std::vector<Group> groups_;
  std::vector<std::int64_t> least_;
  std::int64_t min_ = kNever;
  std::size_t min_group_ = 0;
};

}  // namespace csdsim::nfc
