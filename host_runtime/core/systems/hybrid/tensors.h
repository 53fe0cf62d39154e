// The numbers of the tensors of HybridPlanner.
#pragma once

#include <cstdint>
#include <vector>

#include "host_runtime/core/plan/operation.h"

namespace csdsim::host::hybrid_tensors {

// Parts of tensors that are kept over steps. Two groups of newest tokens take turns, because one may still be on its
// way to its part when the next one begins.
inline constexpr std::uint32_t kKept = 0, kCopied = 1, kNewest = 2, kFirstDrive = 4;
inline constexpr std::uint32_t kActivations = 0, kNewestActivations = 1, kFirstDriveActivations = 3;
// Parts of kv_cache tensors of a step: what the GPU attends to, and a group on its way.
inline constexpr std::uint32_t kRecomputedCopy = 0, kHostCopy = 1, kNewestCopy = 2, kMoved = 3;
// Part of new_kv: a group for a drive.
inline constexpr std::uint32_t kWritten = 1;

inline void add(std::vector<OperationId>& ids, const std::vector<OperationId>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace csdsim::host::hybrid_tensors
