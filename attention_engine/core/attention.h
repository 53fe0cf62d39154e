// Attention over the KV cache of one head, as the engine computes it: fp16 keys and values, fp32 arithmetic, everything
// in token order. Results depend on q, K, V alone: not on page size, grouping, windows, or what is in flash or in DRAM.
//
// q and out are [G][d], G query heads sharing the KV head.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "contracts/token_score.h"

namespace csdsim::engine {

/// The sums that merge attention over some tokens with attention over others.
struct SoftmaxSums {
  float most = 0;  ///< m, the largest logit; -inf without tokens
  float sum = 0;   ///< z, the sum of exp(logit - m); 0 without tokens
};

/// Dense attention: out[g] = softmax(q[g] K^T / sqrt(d)) V. Zero tokens, or logits that are all -inf, give 0.
class DenseAttention {
 public:
  /// q and out are [group][d], `softmax` is [group] or empty. Throws InternalError if their sizes do not fit the head.
  void attend(const KvSource& source, HeadKey key, std::span<const float> q, std::uint32_t group, std::span<float> out,
              std::span<SoftmaxSums> softmax = {});

 private:
  std::vector<float> weights_;  ///< [G][S]
};

/// Token scores of HillInfer (docs/algorithms.md, HillInfer scoring) for the query heads of one KV head: q[g] . k[j] of
/// tokens [first, end) without softmax or scaling. q is [group][d], scores is [group][end - first]. Throws
/// InternalError if their sizes do not fit, or for a token beyond S.
void score_head(const KvSource& source, HeadKey key, ScorePrecision precision, std::span<const float> q,
                std::uint32_t group, std::uint32_t first, std::uint32_t end, std::span<float> scores);

/// Copies the rows of `tokens`, in the order given, to out [tokens][d]. Throws InternalError for a token beyond S.
void fetch_rows(const KvSource& source, HeadKey key, KvKind kind, std::span<const std::uint32_t> tokens,
                std::span<Half> out);

}  // namespace csdsim::engine
