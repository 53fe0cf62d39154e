#include "host_runtime/core/decoder/token_sampling.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/error.h"

namespace csdsim::host {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

}  // namespace

void check(const SamplingOptions& options) {
  if (!std::isfinite(options.temperature) || options.temperature < 0) {
    throw UserError(fmt::format("temperature {} is out of range: 0 (greedy) or more", options.temperature));
  }
  if (!(options.top_p > 0 && options.top_p <= 1)) {
    throw UserError(fmt::format("top_p {} is out of range: more than 0, at most 1", options.top_p));
  }
}

double uniform(std::uint64_t seed, std::uint64_t stream, std::uint64_t step) {
  return static_cast<double>(mix(mix(mix(seed) ^ stream) ^ step) >> 11) * 0x1p-53;
}

TokenId greedy(std::span<const float> logits) {
  if (logits.empty()) throw InternalError("no logits to choose from");
  if (std::ranges::any_of(logits, [](float x) { return std::isnan(x); }))
    throw UserError("the model's logits are not numbers: its weights are broken or overflow fp16");
  const auto best = std::ranges::max_element(logits);
  if (std::isinf(*best))
    throw UserError("the model's largest logit is infinite: its weights are broken or overflow fp16");
  return TokenId{static_cast<std::uint32_t>(best - logits.begin())};
}

TokenId sample(std::span<const float> logits, const SamplingOptions& options, std::uint64_t stream,
               std::uint64_t step) {
  const TokenId best = greedy(logits);
  if (options.temperature == 0) return best;

  std::vector<std::uint32_t> candidates(logits.size());
  std::iota(candidates.begin(), candidates.end(), 0u);
  if (options.top_k > 0 || options.top_p < 1) {
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return logits[a] > logits[b]; });
    if (options.top_k > 0 && options.top_k < candidates.size()) candidates.resize(options.top_k);
  }
  std::vector<double> cumulative(candidates.size());
  double total = 0;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    total += std::exp((double{logits[candidates[i]]} - double{logits[best.value]}) / double{options.temperature});
    cumulative[i] = total;
  }
  if (options.top_p < 1) {
    const auto last = std::lower_bound(cumulative.begin(), cumulative.end(), total * double{options.top_p});
    total = *last;
  }
  const double target = uniform(options.seed, stream, step) * total;
  const auto chosen = std::upper_bound(cumulative.begin(), cumulative.end(), target);
  return TokenId{candidates[static_cast<std::size_t>(chosen - cumulative.begin())]};
}

}  // namespace csdsim::host
