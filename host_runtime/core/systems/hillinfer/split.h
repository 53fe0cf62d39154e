// Splits the tokens between host memory and drive so that both sides of a decode step take equally long (HillInfer,
// section 4.3).
#pragma once

#include <cstdint>

#include "base/quantity.h"
#include "base/ratio.h"

namespace csdsim::host {

/// The path of chosen tokens from the drive to the GPU.
enum class ColdPath : std::uint8_t {
  direct,  ///< peer to peer
  staged   ///< into host memory, then over the GPU's link
};

/// Rates over bytes of K and V, although scores read K only: a pool of m bytes is scored in m / scores.
struct PoolRates {
  Bandwidth host_scores;   ///< f_c
  Bandwidth drive_scores;  ///< f_s
  Bandwidth host_link;     ///< B_c: from host memory to the GPU
  Bandwidth drive_link;    ///< B_s: from the drive to where `path` says
  ColdPath path = ColdPath::direct;
};

/// Shares of each pool that a step attends to: a for both, or measured ones (a_c and a_s), because a pool that keeps
/// the important tokens has more of them than the other.
struct PoolShares {
  Ratio hot{1, 5};
  Ratio cold{1, 5};
};

/// Seconds until each side has scored its bytes and copied what was chosen to the GPU (equation 2; for `staged` the
/// form of section 5.4).
double host_pool_time(const PoolRates& rates, const PoolShares& shares, double bytes);
double drive_pool_time(const PoolRates& rates, const PoolShares& shares, double bytes);
/// The slower side of `bytes` bytes, of which `hot` are in host memory.
double pool_time(const PoolRates& rates, const PoolShares& shares, double bytes, double hot);

/// beta: bytes in host memory per byte in the drive with which both sides take equally long (equation 4). Throws
/// InternalError for a rate of 0.
double balanced_pools(const PoolRates& rates, const PoolShares& shares);

/// The number of `tokens` tokens to keep in host memory, at most `most`: the one with the smallest pool_time().
std::uint64_t hot_tokens(const PoolRates& rates, const PoolShares& shares, std::uint64_t tokens, std::uint64_t most);

}  // namespace csdsim::host
