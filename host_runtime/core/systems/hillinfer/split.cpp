#include "host_runtime/core/systems/hillinfer/split.h"

#include <algorithm>

#include "base/error.h"

namespace csdsim::host {

namespace {

double per_byte(Bandwidth rate) {
  if (rate.bytes_per_second == 0) throw InternalError("a split of tokens between host and drive needs all four rates");
  return 1 / static_cast<double>(rate.bytes_per_second);
}

}  // namespace

double host_pool_time(const PoolRates& rates, const PoolShares& shares, double bytes) {
  return bytes * (per_byte(rates.host_scores) + shares.hot.value() * per_byte(rates.host_link));
}

double drive_pool_time(const PoolRates& rates, const PoolShares& shares, double bytes) {
  double copy = per_byte(rates.drive_link);
  if (rates.path == ColdPath::staged) copy += per_byte(rates.host_link);
  return bytes * (per_byte(rates.drive_scores) + shares.cold.value() * copy);
}

double pool_time(const PoolRates& rates, const PoolShares& shares, double bytes, double hot) {
  return std::max(host_pool_time(rates, shares, hot), drive_pool_time(rates, shares, bytes - hot));
}

double balanced_pools(const PoolRates& rates, const PoolShares& shares) {
  return drive_pool_time(rates, shares, 1) / host_pool_time(rates, shares, 1);
}

std::uint64_t hot_tokens(const PoolRates& rates, const PoolShares& shares, std::uint64_t tokens, std::uint64_t most) {
  const double beta = balanced_pools(rates, shares), all = static_cast<double>(tokens);
  // The time falls until both sides are equal and rises then: only the neighbours of this point need comparing.
  const std::uint64_t last = std::min(tokens, most);
  const std::uint64_t below = std::min(last, static_cast<std::uint64_t>(all * beta / (1 + beta)));
  const std::uint64_t above = std::min(last, below + 1);
  const auto time = [&](std::uint64_t hot) { return pool_time(rates, shares, all, static_cast<double>(hot)); };
  return time(above) < time(below) ? above : below;
}

}  // namespace csdsim::host
