// Operators of the attention methods: they maintain what a method keeps of a cache, and choose tokens. All take the
// sequences of a batch, whose new tokens are in the cache already; q is [sequences][heads * d], scores and lists are
// [sequences][heads, KV heads or lists][stride]. Shapes are preconditions.
#pragma once

#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// Sequences of a batch, on the device: `first` tokens were in the cache before the new ones.
struct SequenceView {
  const std::uint32_t* slots = nullptr;
  const std::uint32_t* rows = nullptr;  ///< row of the first new token in the batch
  const std::uint32_t* firsts = nullptr;
  const std::uint32_t* lengths = nullptr;
  std::uint32_t count = 0;
  std::uint32_t longest = 0;   ///< length
  std::uint32_t most_new = 0;  ///< largest number of new tokens of a sequence
};

/// Stores rows of k and v, [kv_heads * d], in the caches.
void extend_cache(const Stream& stream, const SequenceView& batch, const __half* k, const __half* v,
                  const CacheShape& shape, __half* keys, __half* values);

// Choosing the best.

/// Chooses the newest[sequence] tokens and, of the others, those with the largest scores: counts[sequence][list] in
/// all, at most the length. The result is for decode_attention(), in the layout of the scores; its order is
/// unspecified. `newest` must not exceed the smallest count, otherwise only the newest tokens are chosen. Equal scores:
/// the lower index. NaN counts as smallest.
void choose_best(const Stream& stream, const SequenceView& batch, std::uint32_t lists, std::uint32_t stride,
                 const float* scores, const std::uint32_t* newest, const std::uint32_t* counts, std::uint32_t* chosen);

/// Chooses the first `sinks` tokens and the newest ones, counts[sequence] in all, always including the last one: chosen
/// [sequences][1][stride].
void choose_window(const Stream& stream, const SequenceView& batch, std::uint32_t sinks, std::uint32_t stride,
                   const std::uint32_t* counts, std::uint32_t* chosen);

/// Maximum and sum of exp(score - maximum) of the first `counts` scores of every head: counts [sequences][lists], lists
/// 1 or KV heads; scores [sequences][heads][stride]; softmax [sequences][heads].
void softmax_scales(const Stream& stream, std::uint32_t sequences, const CacheShape& shape, const float* scores,
                    std::uint32_t stride, const std::uint32_t* counts, std::uint32_t lists, float2* softmax);

// SparQ.

/// What SparQ keeps: components [slot][kv head][d][capacity] of the keys, means [slot][kv head][d] of the values.
void extend_components(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                       const __half* values, __half* components, float* means);

/// The r components with the largest sum of |q| over the group, ascending, [sequences][kv heads][r], and the divisor of
/// logits over these components, tau [sequences][heads].
void choose_components(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                       std::uint32_t r, std::uint32_t* chosen, float* tau);

/// Logits of all tokens by the chosen components alone.
void component_logits(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                      const __half* components, const std::uint32_t* chosen, const float* tau, std::uint32_t r,
                      std::uint32_t stride, float* logits);

/// One score per KV head: the sum over its group of the logits, or of the probabilities.
void combine_logits(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const float* logits,
                    std::uint32_t stride, const float2* softmax, bool probabilities, float* scores);

/// The share of the softmax of `logits` on the chosen tokens, alpha [sequences][heads], at most 1.
struct BlendArguments {
  const float* logits = nullptr;
  const float2* softmax = nullptr;
  const std::uint32_t* chosen = nullptr;  ///< [sequences][kv heads][stride]
  const std::uint32_t* counts = nullptr;
  const __half* values = nullptr;
  const float* means = nullptr;
  std::uint32_t stride = 0;
  bool reallocate = true;
  bool mean_of_rest = false;  ///< mean of the values that were not chosen, not of all
  float* alpha = nullptr;
};
/// out = alpha out + (1 - alpha) mean, where not all tokens were chosen. out is [sequences][heads * d].
void blend_mean(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const BlendArguments& blend,
                float* out);

// H2O.

/// The kept tokens of every slot and KV head, ascending, and their weights: kept and weights [slot][kv
/// head][capacity], counts [slot][kv head].
struct KeptTokens {
  std::uint32_t* kept = nullptr;
  float* weights = nullptr;
  std::uint32_t* counts = nullptr;
};

/// Adds the new tokens with weight 0; for a sequence that begins, they are all that is kept.
void keep_new(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const KeptTokens& state);
/// The lists of the batch's sequences: chosen [sequences][kv heads][stride], counts [sequences][kv heads].
void list_kept(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const KeptTokens& state,
               std::uint32_t stride, std::uint32_t* chosen, std::uint32_t* counts);
/// Adds the softmax weights that the rows of a prompt give its tokens, which are all kept; q [rows][heads * d]. It
/// needs memory for maximum and sum of every row and head.
void weigh_prompt(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                  const __half* q, const __half* keys, const KeptTokens& state);
/// Scaled scores of the listed tokens, [sequences][heads][stride].
void listed_scores(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* q,
                   const __half* keys, const std::uint32_t* chosen, const std::uint32_t* counts, std::uint32_t stride,
                   float* scores);
/// Adds their softmax weights, summed over the group.
void weigh_listed(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const float* scores,
                  const float2* softmax, std::uint32_t stride, const KeptTokens& state);
/// Where more than capacities[sequence] tokens are kept, the newest recents[sequence] of the sequence stay and, of the
/// others, the heaviest (`by_mean`: by the mean weight of the queries that could see them); of equals the newer.
void evict(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
           const std::uint32_t* capacities, const std::uint32_t* recents, bool by_mean, const KeptTokens& state);

// InfiniGen.

/// Keys by `columns` columns of a skew [slot][kv head][columns][d]: projected [slot][kv head][capacity][columns].
void project_keys(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                  const float* skew, std::uint32_t columns, float* projected);

struct SpeculationArguments {
  const __half* q = nullptr;  ///< [slot][heads * d]
  const float* skew = nullptr;
  const float* projected = nullptr;
  const std::uint32_t* dense = nullptr;    ///< by sequence: 1 if all tokens are fetched
  const std::uint32_t* budgets = nullptr;  ///< by sequence: tokens at most, the newest one included
  std::uint32_t columns = 0;
  std::uint32_t stride = 0;
  float threshold = 0;
};
/// Speculated logits of all tokens but the newest, scores [sequences][kv heads][stride], and how many tokens every head
/// of a sequence fetches, counts [sequences][kv heads]: 1 more than the mean over the heads of how many come within
/// the threshold of the largest, at most the budget.
void speculate_scores(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                      const SpeculationArguments& speculation, float* scores, std::uint32_t* counts);

// Chunk bounds.

/// Chunks of leaf, 2 leaf, ... tokens. Abstracts of level i are [slot][kv head][chunks(i)][2][d]: the least and the
/// largest of every component.
struct ChunkLevels {
  static constexpr std::uint32_t kMost = 24;
  std::uint32_t count = 0;
  std::uint32_t leaf = 0;
  std::uint32_t capacity = 0;
  __half* abstracts[kMost] = {};

  __host__ __device__ std::uint32_t chunks(std::uint32_t level, std::uint32_t tokens) const {
    return (tokens + (leaf << level) - 1) / (leaf << level);
  }
};

void extend_chunks(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                   const ChunkLevels& levels);
/// Chooses as ChunkAttention does: budgets[sequence] tokens, ascending, [sequences][kv heads][stride], their counts and
/// the number of abstracts examined, both [sequences][kv heads].
void choose_by_chunks(const Stream& stream, DevicePool& pool, const SequenceView& batch, const CacheShape& shape,
                      const __half* q, const ChunkLevels& levels, const std::uint32_t* budgets, std::uint32_t stride,
                      std::uint32_t* chosen, std::uint32_t* counts, std::uint32_t* examined);

// Importance in low precision.

/// Rows of d values as integers of 8 bits times a scale: see host::quantise().
void quantise(const Stream& stream, const __half* rows, std::size_t count, std::uint32_t d, std::int8_t* out,
              float* scales);
/// Quantises new keys to 8 or 4 bits, one value per byte: out [slot][kv head][capacity][d], scales [slot][kv
/// head][capacity].
void quantise_keys(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const __half* keys,
                   std::uint32_t bits, std::int8_t* out, float* scales);

/// How the scores of the heads that share a list are combined: see ScoreAggregate.
struct ImportanceQuery {
  const std::int8_t* q = nullptr;  ///< [sequences][heads][d]
  const float* q_scales = nullptr;
  const std::int8_t* keys = nullptr;
  const float* key_scales = nullptr;
  const __half* exact_q = nullptr;  ///< [sequences][heads][d]: with exact_keys, in the place of the integers
  const __half* exact_keys = nullptr;
  bool per_head = false;  ///< one list per KV head, else one for all
  bool largest = false;   ///< the largest of the heads, not their sum
};
/// The importance of ImportanceAttention of all tokens but the newest, scores [sequences][lists][stride]; of
/// integers d is a multiple of 4.
void importance(const Stream& stream, const SequenceView& batch, const CacheShape& shape, const ImportanceQuery& query,
                std::uint32_t stride, float* scores);

}  // namespace csdsim::host::cuda
