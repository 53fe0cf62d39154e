// Attention over a part of the tokens, and the union of such parts.
#pragma once

#include <span>
#include <vector>

#include "host_runtime/core/attention/attention.h"
#include "host_runtime/core/attention/kv_cache.h"

namespace csdsim::host {

/// Attention of G query heads over some tokens: what has to be known to merge it with other tokens' (FlashAttention,
/// arXiv 2205.14135, section 3.1).
struct PartialAttention {
  std::vector<float> out;   ///< o [G][d], normalised over these tokens
  std::vector<float> most;  ///< m [G], the largest logit; -inf without tokens, or if all logits are
  std::vector<float> sum;   ///< z [G], the sum of exp(logit - m)
};

/// q is [G][head_dim]; logits are scaled by 1/sqrt(head_dim). InternalError if q is not whole heads.
PartialAttention attend_partially(std::span<const float> q, const KvView& kv);

/// The same with SparQ: `out` is its output, m that of the tokens that it chooses, and z the sum over these by alpha,
/// their share of the approximate probability, so that the part weighs as much as all its tokens. Where alpha is 0, z
/// is the sum.
PartialAttention attend_partially(const SparqOptions& sparq, std::span<const float> q, const KvView& kv);

/// Attention over the tokens of all parts, [G][d]: m = max m_i, w_i = z_i exp(m_i - m), o = sum w_i o_i / sum w_i.
/// Parts are disjoint. Without any token 0. InternalError if the parts have different shapes or there is none.
std::vector<float> merge(std::span<const PartialAttention> parts);

}  // namespace csdsim::host
