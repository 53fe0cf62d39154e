#include "host_runtime/core/features/token_pools/model/pool_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {
namespace {

std::uint64_t hot_tokens_of(const PoolShares& shares, std::uint32_t context) {
  return std::max<std::uint64_t>(1, shares.hot.round_of(context)) + 1;
}

/// The pinned tokens, then the important ones, then the newest, as many as there is room for; ascending.
std::vector<std::uint32_t> first_hot(const TokenPools& pools, const TokenRecording::List& important,
                                     std::uint32_t context) {
  const PoolOptions& options = pools.options();
  const auto pinned = static_cast<std::uint32_t>(ceil_of(options.pinned, context));
  std::vector<std::uint8_t> chosen(context);
  std::vector<std::uint32_t> order(context);
  std::iota(order.rbegin(), order.rend(), 0U);
  const auto rank = [&](std::uint32_t token) {
    if (token >= context - pinned) return 0;
    return std::binary_search(important.begin(), important.end(), token) ? 1 : 2;
  };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) { return rank(a) < rank(b); });
  order.resize(std::min<std::size_t>(order.size(), options.hot_tokens - 1));
  std::sort(order.begin(), order.end());
  return order;
}

}  // namespace

PoolTraffic& PoolTraffic::operator+=(const PoolTraffic& other) {
  steps += other.steps;
  context += other.context;
  cold += other.cold;
  important += other.important;
  cold_important += other.cold_important;
  promoted += other.promoted;
  demoted += other.demoted;
  written += other.written;
  return *this;
}

PoolTraffic replay(const TokenRecording& recording, const TokenRecording::Steps& steps, const PoolShares& shares) {
  PoolTraffic traffic;
  if (steps.empty()) return traffic;
  if (shares.hot > Ratio{1, 1})
    throw UserError(fmt::format("a share of {}/{} of the context that may be hot is above 1", shares.hot.numerator,
                                shares.hot.denominator));
  const std::uint32_t first = recording.context(0);
  TokenPools pools({.hot_tokens = hot_tokens_of(shares, first),
                    .pinned = shares.pinned,
                    .kept_hot = shares.kept_hot,
                    .policy = shares.policy});
  pools.start(first, first_hot(pools, steps[0], first));
  pools.step(steps[0]);
  for (std::size_t step = 1; step < steps.size(); ++step) {
    pools.append();
    pools.set_hot_tokens(hot_tokens_of(shares, pools.tokens()));
    ++traffic.steps;
    traffic.context += pools.tokens();
    traffic.cold += pools.tokens() - pools.hot_count();
    traffic.important += steps[step].size();
    for (const std::uint32_t token : steps[step]) traffic.cold_important += !pools.hot(token);
    const PoolMoves& moves = pools.step(steps[step]);
    traffic.promoted += moves.promoted.size();
    traffic.demoted += moves.demoted.size();
    traffic.written += moves.written.size();
  }
  return traffic;
}

PoolTraffic replay(const TokenRecording& recording, const PoolShares& shares) {
  PoolTraffic traffic;
  for (const auto& window : recording.windows)
    for (const auto& layer : window)
      for (const TokenRecording::Steps& steps : layer) traffic += replay(recording, steps, shares);
  return traffic;
}

}  // namespace csdsim::host
