// Chooses the number of tokens to recompute while K and V of the others travel (KVPR, arXiv 2411.17089, section 3.2).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/quantity.h"
#include "base/units.h"
#include "host_runtime/core/machine/gemm_rates.h"

namespace csdsim::host {

/// Costs of one token of a layer.
struct SplitCosts {
  Bytes activations;        ///< that cross the link before K and V can be recomputed; 0 if they are on the GPU
  Bytes kv;                 ///< bytes of K and V, which cross the link if they are not recomputed
  std::uint64_t flops = 0;  ///< operations of the recomputation
};

struct SplitRates {
  Bandwidth link;          ///< to the GPU, from wherever activations, K and V are
  ComputeRate gemm;        ///< rate of the GPU in the recomputation
  GemmRates by_rows = {};  ///< the same by the tokens that are recomputed together; replaces `gemm` if it is given
};

/// Seconds until K and V of `tokens` tokens of a layer are on the GPU if `recomputed` of them are recomputed: their
/// activations travel first, then the other tokens' K and V travel during the recomputation (KVPR, equation 10).
double split_time(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t recomputed);

/// The number of recomputed tokens, a multiple of `step` up to `most`, with the smallest split_time(); of equal ones
/// the smallest. The time falls until both sides of the maximum are equal and rises then, because more tokens never
/// take less time to recompute, so that only the neighbours of this point need comparing. Where the activations of a
/// token have at least as many bytes as its K and V (grouped queries), nothing is recomputed. Throws InternalError for
/// a rate or step of 0.
std::uint64_t split_point(const SplitCosts& costs, const SplitRates& rates, std::uint64_t tokens, std::uint64_t most,
                          std::uint64_t step = 1);

/// Tokens of a mini-batch that a step recomputes.
struct SplitRule {
  SplitCosts costs;
  SplitRates rates;
  std::optional<Ratio> share;  ///< share of the cached tokens; unset: solved with the costs and rates
  std::uint64_t step = 1;      ///< together a multiple of it
};

/// By sequence: together the split of all, each in proportion to its cached tokens, but at most its prompt.
std::vector<std::uint32_t> split_of_sequences(const SplitRule& rule, std::span<const std::uint32_t> cached,
                                              std::span<const std::uint32_t> prompts);

/// The largest gain that any split can have over none, as a quotient of times: s / (s - l) with activations on the GPU,
/// 2 s / (2 s - l) where they are half of the bytes of K and V.
double most_split_gain(const SplitCosts& costs, const SplitRates& rates);

}  // namespace csdsim::host
