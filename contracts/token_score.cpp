#include "contracts/token_score.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/simd.h"

namespace csdsim {
namespace {

// At most d * 127 * 127: an int32 holds it up to d = 133,000.
std::int32_t product(const std::int8_t* a, const std::int8_t* b, std::size_t n) {
  std::int32_t sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += std::int32_t{a[i]} * std::int32_t{b[i]};
  return sum;
}

}  // namespace

float quantise(std::span<const float> x, int largest, std::span<std::int8_t> out) {
  float magnitude = 0;
  for (const float value : x) magnitude = std::max(magnitude, std::abs(value));
  const auto bound = static_cast<float>(largest);
  const float scale = magnitude / bound;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float steps = scale > 0 ? std::nearbyint(x[i] / scale) : 0.0f;
    out[i] = static_cast<std::int8_t>(std::clamp(steps, -bound, bound));
  }
  return scale;
}

ScoringQueries::ScoringQueries(ScorePrecision precision, std::span<const float> q, std::size_t group)
    : precision_(precision), q_(q), group_(group) {
  if (precision == ScorePrecision::fp16) return;
  const std::size_t d = q.size() / group;
  steps_.resize(q.size());
  for (std::size_t g = 0; g < group; ++g)
    scales_.push_back(quantise(q.subspan(g * d, d), kLargestQueryStep, std::span(steps_).subspan(g * d, d)));
}

void ScoringQueries::score(const Half* keys, std::size_t count, float* scores, std::size_t stride) const {
  const std::size_t d = q_.size() / group_;
  if (precision_ == ScorePrecision::fp16)
    return simd::gemv_rows_group(q_.data(), group_, keys, count, d, scores, stride);
  std::vector<float> key(d);
  std::vector<std::int8_t> steps(d);
  for (std::size_t j = 0; j < count; ++j) {
    simd::widen(keys + j * d, key.data(), d);
    const float scale = quantise(key, largest_key_step(precision_), steps);
    score(steps.data(), &scale, 1, scores + j, stride);
  }
}

void ScoringQueries::score(const std::int8_t* keys, const float* scales, std::size_t count, float* scores,
                           std::size_t stride) const {
  const std::size_t d = q_.size() / group_;
  for (std::size_t g = 0; g < group_; ++g)
    for (std::size_t j = 0; j < count; ++j)
      scores[g * stride + j] =
          scales_[g] * scales[j] * static_cast<float>(product(steps_.data() + g * d, keys + j * d, d));
}

void begin_scores(ScoreAggregate aggregate, std::span<float> list) {
  std::ranges::fill(list, aggregate == ScoreAggregate::max_raw ? -std::numeric_limits<float>::infinity() : 0.0f);
}

void add_scores(ScoreAggregate aggregate, std::span<const float> of_query, std::span<float> list) {
  const bool largest = aggregate == ScoreAggregate::max_raw;
  for (std::size_t j = 0; j < list.size(); ++j)
    list[j] = largest ? std::max(list[j], of_query[j]) : list[j] + of_query[j];
}

}  // namespace csdsim
