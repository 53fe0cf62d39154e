// Weighted round robin with urgent priority class (NVMe Base 1.4, 4.13.2): which class of submission queues is next.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "nvme_if/spec/command.h"

namespace csdsim::nvme {

/// Commands of a round that the classes high, medium and low may have fetched.
struct PriorityWeights {
  std::array<std::uint32_t, 3> commands{1, 1, 1};

  /// From the value of the feature Arbitration, whose weights are 0's based.
  static constexpr PriorityWeights decode(std::uint32_t feature) {
    return {{(feature >> 24) + 1, ((feature >> 16) & 0xFF) + 1, ((feature >> 8) & 0xFF) + 1}};
  }
};

class WeightedArbiter {
 public:
  /// The class to serve among those that have entries, `waiting` by QueuePriority, and how many of its commands at
  /// most. The urgent class goes first, without limit. The others have their weight in commands a round, high before
  /// medium before low; a round ends when no class that waits has any left.
  struct Turn {
    QueuePriority priority;
    std::uint32_t commands;
  };
  std::optional<Turn> next(const std::array<bool, kQueuePriorities>& waiting, const PriorityWeights& weights) {
    if (waiting[0]) return Turn{QueuePriority::urgent, ~std::uint32_t{0}};
    for (int round = 0; round < 2; ++round) {
      for (std::size_t c = 1; c < kQueuePriorities; ++c)
        if (waiting[c] && left_[c - 1] > 0) return Turn{static_cast<QueuePriority>(c), left_[c - 1]};
      left_ = weights.commands;
    }
    return std::nullopt;
  }

  void fetched(QueuePriority priority, std::uint32_t commands) {
    if (priority == QueuePriority::urgent) return;
    std::uint32_t& left = left_[static_cast<std::size_t>(priority) - 1];
    left -= std::min(left, commands);
  }

 private:
  std::array<std::uint32_t, 3> left_{};  ///< turns left in this round for high, medium, low
};

}  // namespace csdsim::nvme
