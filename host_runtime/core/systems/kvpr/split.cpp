#include "host_runtime/core/systems/kvpr/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// Seconds of what a number of tokens costs.
struct TokenTimes {
  double activations, kv, flops;  ///< per token
  const SplitRates& rates;

  TokenTimes(const SplitCosts& costs, const SplitRates& r) : flops(static_cast<double>(costs.flops)), rates(r) {
    if (rates.link.bytes_per_second == 0 || (rates.gemm.flop_per_second == 0 && !rates.by_rows.given()))
      throw InternalError("a split between a link and a GPU needs the rates of both");
    const auto link = static_cast<double>(rates.link.bytes_per_second);
    activations = static_cast<double>(costs.activations.value) / link;
    kv = static_cast<double>(costs.kv.value) / link;
  }
  double recomputation(std::uint64_t tokens) const {
    const auto rows = static_cast<double>(tokens);
    return rows * flops /
           (rates.by_rows.given() ? rates.by_rows.rate(rows) : static_cast<double>(rates.gemm.flop_per_second));
  }
  double travel(std::uint64_t tokens) const { return static_cast<double>(tokens) * kv; }
};

}  // namespace

double split_time(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t recomputed) {
  const TokenTimes of(costs, rates);
  return static_cast<double>(recomputed) * of.activations +
         std::max(of.recomputation(recomputed), of.travel(tokens - recomputed));
}

std::uint64_t split_point(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t most,
                          std::uint64_t step) {
  if (step == 0) throw InternalError("a split in steps of 0 tokens");
  const TokenTimes of(costs, rates);
  if (costs.activations >= costs.kv) return 0;
  // The last multiple of `step` at which the link is not faster than the recomputation.
  std::uint64_t below = 0;
  const std::uint64_t last = std::min(tokens, most) / step;
  for (std::uint64_t beyond = last + 1; beyond - below > 1;) {
    const std::uint64_t middle = below + (beyond - below) / 2;
    (of.recomputation(middle * step) <= of.travel(tokens - middle * step) ? below : beyond) = middle;
  }
  const std::uint64_t above = std::min(last, below + 1);
  return step * (split_time(costs, rates, tokens, above * step) < split_time(costs, rates, tokens, below * step)
                     ? above
                     : below);
}

std::vector<std::uint32_t> split_of_sequences(const SplitRule& rule, std::span<const std::uint32_t> cached,
                                              std::span<const std::uint32_t> prompts) {
  const auto all = std::accumulate(cached.begin(), cached.end(), std::uint64_t{0});
  const auto most = std::accumulate(prompts.begin(), prompts.end(), std::uint64_t{0});
  const std::uint64_t split = rule.share ? std::min(most, rule.share->round_of(all) / rule.step * rule.step)
                                         : split_point(rule.costs, rule.rates, all, most, rule.step);
  std::vector<std::uint32_t> tokens;
  std::uint64_t left = split;
  for (std::size_t i = 0; i < cached.size(); ++i) {
    const auto wanted = static_cast<std::uint32_t>(Ratio{cached[i], all}.floor_of(split));
    tokens.push_back(std::min(wanted, prompts[i]));
    left -= tokens.back();
  }
  // Rounding and short prompts leave some over, for those whose prompt has more.
  for (std::size_t i = 0; i < tokens.size() && left > 0; ++i) {
    const auto more = static_cast<std::uint32_t>(std::min<std::uint64_t>(left, prompts[i] - tokens[i]));
    tokens[i] += more;
    left -= more;
  }
  return tokens;
}

double most_split_gain(const SplitCosts& costs, const SplitRates& rates) {
  if (costs.activations >= costs.kv) return 1;
  const TokenTimes token(costs, rates);
  const ComputeRate gemm = rates.by_rows.given() ? rates.by_rows.highest() : rates.gemm;
  const double balance = token.kv / (token.kv + token.flops / static_cast<double>(gemm.flop_per_second));
  return token.kv / (token.kv - (token.kv - token.activations) * balance);
}

}  // namespace csdsim::host
