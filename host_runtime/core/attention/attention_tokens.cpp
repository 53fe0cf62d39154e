// Functions that several attention methods share.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

void HeadAttention::attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) {
  if (step.heads.empty() || step.q.size() != out.size()) throw InternalError("attention: q and out must agree");
  const std::size_t size = step.q.size() / step.heads.size();
  for (std::size_t head = 0; head < step.heads.size(); ++head) {
    attend(step.q.subspan(head * size, size), step.heads[head], out.subspan(head * size, size),
           selections.empty() ? nullptr : &selections[head]);
  }
}

void attend_tokens(std::span<const float> q, const KvView& kv, std::span<const std::uint32_t> chosen,
                   std::span<float> out, std::vector<float>* weights) {
  const std::size_t d = kv.head_dim, group = q.size() / d, count = chosen.size();
  if (q.size() != out.size() || q.size() % d != 0) throw InternalError("attention: q and out must agree");
  std::fill(out.begin(), out.end(), 0.0f);
  if (weights != nullptr) weights->assign(group * count, 0.0f);
  if (count == 0) return;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> scores(count);
  for (std::size_t g = 0; g < group; ++g) {
    const float* query = q.data() + g * d;
    float* to = out.data() + g * d;
    for (std::size_t j = 0; j < count; ++j) {
      scores[j] = simd::dot(query, kv.keys.data() + chosen[j] * d, d) * scale;
    }
    const float sum = simd::exp_shifted(scores.data(), count, *std::max_element(scores.begin(), scores.end()));
    for (std::size_t j = 0; j < count; ++j) simd::axpy(scores[j], kv.values.data() + chosen[j] * d, to, d);
    for (std::size_t i = 0; i < d; ++i) to[i] /= sum;
    if (weights == nullptr) continue;
    for (std::size_t j = 0; j < count; ++j) (*weights)[g * count + j] = scores[j] / sum;
  }
}

void describe_selection(std::span<const std::uint32_t> chosen, std::uint64_t elements, HeadSelection* selection) {
  if (selection == nullptr) return;
  selection->components.clear();
  selection->alpha.clear();
  selection->recall.reset();
  selection->elements = elements;
  selection->tokens.clear();
  for (const std::uint32_t j : chosen) selection->tokens.push_back(TokenIndex{j});
}

std::vector<float> attention_mass(std::span<const float> q, const KvView& kv, std::span<const TokenIndex> tokens) {
  const std::size_t d = kv.head_dim, group = q.size() / d;
  if (tokens.size() == kv.tokens) return std::vector<float>(group, 1.0f);
  std::vector<float> mass(group), scores(kv.tokens);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  for (std::size_t g = 0; g < group; ++g) {
    simd::gemv_rows(q.data() + g * d, kv.keys.data(), kv.tokens, d, scores.data());
    for (float& score : scores) score *= scale;
    const float sum = simd::exp_shifted(scores.data(), scores.size(), simd::max_value(scores.data(), scores.size()));
    float kept = 0;
    for (const TokenIndex token : tokens) kept += scores[token.value];
    mass[g] = std::min(kept / sum, 1.0f);  // rounding may carry it beyond 1
  }
  return mass;
}

std::vector<std::uint32_t> top_indices(std::span<const float> keys, std::size_t count) {
  count = std::min(count, keys.size());
  std::vector<std::uint32_t> chosen;
  if (count == 0) return chosen;
  const auto rank = [](float key) { return std::isnan(key) ? -std::numeric_limits<float>::infinity() : key; };
  std::vector<float> ranks(keys.size());
  std::transform(keys.begin(), keys.end(), ranks.begin(), rank);
  const auto last = ranks.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(ranks.begin(), last, ranks.end(), std::greater<>());
  const float least = *last;
  // All keys above the least one that is chosen, and of its equals the first ones.
  std::size_t equals = 1 + static_cast<std::size_t>(std::count(ranks.begin(), last, least));
  chosen.reserve(count);
  for (std::uint32_t i = 0; chosen.size() < count; ++i) {
    const float key = rank(keys[i]);
    if (key > least || (key == least && equals > 0)) {
      equals -= key == least;
      chosen.push_back(i);
    }
  }
  return chosen;
}

std::vector<std::uint32_t> all_indices(std::size_t n) {
  std::vector<std::uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0U);
  return all;
}

}  // namespace csdsim::host
