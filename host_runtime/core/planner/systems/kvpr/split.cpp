#include "host_runtime/core/planner/systems/kvpr/split.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"

namespace csdsim::host {

namespace {

/// Seconds per token.
struct TokenTimes {
  double activations, kv, recomputation;

  TokenTimes(const SplitCosts& costs, const SplitRates& rates) {
    if (rates.link.bytes_per_second == 0 || rates.gemm.flop_per_second == 0)
      throw InternalError("a split between a link and a GPU needs the rates of both");
    const auto link = static_cast<double>(rates.link.bytes_per_second);
    activations = static_cast<double>(costs.activations.value) / link;
    kv = static_cast<double>(costs.kv.value) / link;
    recomputation = static_cast<double>(costs.flops) / static_cast<double>(rates.gemm.flop_per_second);
  }
  /// Share of the tokens with which recomputation and link take equally long.
  double balance() const { return kv / (kv + recomputation); }
};

}  // namespace

double split_time(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t recomputed) {
  const TokenTimes token(costs, rates);
  const auto l = static_cast<double>(recomputed), others = static_cast<double>(tokens - recomputed);
  return l * token.activations + std::max(l * token.recomputation, others * token.kv);
}

std::uint64_t split_point(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t most,
                          std::uint64_t step) {
  if (step == 0) throw InternalError("a split in steps of 0 tokens");
  const TokenTimes token(costs, rates);
  if (costs.activations >= costs.kv) return 0;
  const std::uint64_t last = std::min(tokens, most) / step * step;
  const double balance = token.balance() * static_cast<double>(tokens);
  const std::uint64_t below = std::min(last, static_cast<std::uint64_t>(balance) / step * step);
  const std::uint64_t above = std::min(last, below + step);
  return split_time(costs, rates, tokens, above) < split_time(costs, rates, tokens, below) ? above : below;
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
  return token.kv / (token.kv - (token.kv - token.activations) * token.balance());
}

}  // namespace csdsim::host
