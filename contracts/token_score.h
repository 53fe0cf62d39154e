// Scores of cached tokens (HillInfer; docs/hillinfer.md): inner products of a query with keys, neither scaled nor
// exponentiated. Host and drive call these functions, so both get the same bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/fp16.h"

namespace csdsim {

/// The arithmetic of q . k.
enum class ScorePrecision : std::uint8_t {
  fp16,  ///< fp16 products, summed in fp32
  int8,  ///< q and k as INT8 times a scale
  int4   ///< q as INT8, k as INT4 times a scale
};

/// The combination of the scores of a layer's query heads.
enum class ScoreAggregate : std::uint8_t {
  sum_raw,  ///< one list per layer, by the sum over the heads: as the paper's hardware does
  max_raw,  ///< one list per layer, by the largest over the heads
  per_head  ///< one list per KV head, by the sum over its group
};

/// x as scale * integers: scale = max |x| / largest, integers rounded half to even. Zeros have scale 0.
float quantise(std::span<const float> x, int largest, std::span<std::int8_t> out);

/// The largest integer of a component of q, and of k. Precondition: `precision` is not fp16.
inline constexpr int kLargestQueryStep = 127;
constexpr int largest_key_step(ScorePrecision precision) { return precision == ScorePrecision::int4 ? 7 : 127; }

/// Query heads that score the keys of their KV head.
class ScoringQueries {
 public:
  /// `q` is [group][d]; it must outlive this.
  ScoringQueries(ScorePrecision precision, std::span<const float> q, std::size_t group);

  /// scores[g * stride + j] = q[g] . k[j] of keys [count][d], cast on the fly where the precision is an integer one. A
  /// score does not depend on how the keys are cut into calls.
  void score(const Half* keys, std::size_t count, float* scores, std::size_t stride) const;

  /// The same of keys that quantise() has cast, with their scales [count]: scale of q[g] * scale of k[j] * sum of the
  /// products in INT32. Precondition: an integer precision.
  void score(const std::int8_t* keys, const float* scales, std::size_t count, float* scores, std::size_t stride) const;

 private:
  ScorePrecision precision_;
  std::span<const float> q_;
  std::size_t group_;
  std::vector<std::int8_t> steps_;  ///< [group][d]
  std::vector<float> scales_;       ///< [group]
};

/// Adds the list of one query head to `list`, which begin_scores() has started. Lists are added in the order of the
/// query heads.
void add_scores(ScoreAggregate aggregate, std::span<const float> of_query, std::span<float> list);
/// The empty sum, or the empty maximum.
void begin_scores(ScoreAggregate aggregate, std::span<float> list);

}  // namespace csdsim
