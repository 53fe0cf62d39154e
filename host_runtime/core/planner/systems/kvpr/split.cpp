#include "host_runtime/core/planner/systems/kvpr/split.h"

#include <algorithm>
#include <cmath>

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

double most_split_gain(const SplitCosts& costs, const SplitRates& rates) {
  if (costs.activations >= costs.kv) return 1;
  const TokenTimes token(costs, rates);
  return token.kv / (token.kv - (token.kv - token.activations) * token.balance());
}

}  // namespace csdsim::host
