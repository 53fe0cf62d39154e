// Replays recorded important tokens through the pools: what moves per step.
#pragma once

#include "host_runtime/core/features/token_pools/model/token_pools.h"
#include "host_runtime/core/features/token_pools/model/token_recording.h"

namespace csdsim::host {

/// Pools that grow with the context.
struct PoolShares {
  Ratio hot{4, 5};  ///< share of the context that may be hot, the place of the next token not counted
  Ratio pinned{0, 1};
  Ratio kept_hot{0, 1};
  PoolPolicy policy = PoolPolicy::hit_table;
};

/// Sums over steps, of tokens.
struct PoolTraffic {
  std::uint64_t steps = 0;
  std::uint64_t context = 0;
  std::uint64_t cold = 0;  ///< before the step's moves
  std::uint64_t important = 0;
  std::uint64_t cold_important = 0;  ///< to be fetched from the drive within the step
  std::uint64_t promoted = 0, demoted = 0;
  std::uint64_t written = 0;  ///< demoted tokens that the drive did not hold yet

  PoolTraffic& operator+=(const PoolTraffic& other);
};

/// Replays one list of a layer. The first step stands for what the prefill leaves: its important tokens are hot, and so
/// are the newest others while there is room. The traffic is that of the steps after it. UserError if what must be hot
/// does not fit, and for a share above 1.
PoolTraffic replay(const TokenRecording& recording, const TokenRecording::Steps& steps, const PoolShares& shares);
/// Replays all windows, layers and lists.
PoolTraffic replay(const TokenRecording& recording, const PoolShares& shares);

}  // namespace csdsim::host
