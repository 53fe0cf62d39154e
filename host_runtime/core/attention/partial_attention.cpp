#include "host_runtime/core/attention/partial_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::host {

PartialAttention attend_partially(std::span<const float> q, const KvView& kv) {
  const std::size_t d = kv.head_dim;
  if (d == 0 || q.size() % d != 0) throw InternalError("partial attention: q must be [group][head_dim]");
  const std::size_t group = q.size() / d;
  PartialAttention part{std::vector<float>(q.size()),
                        std::vector<float>(group, -std::numeric_limits<float>::infinity()), std::vector<float>(group)};
  if (kv.tokens == 0) return part;
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> weights(kv.tokens);
  for (std::size_t g = 0; g < group; ++g) {
    simd::gemv_rows(q.data() + g * d, kv.keys.data(), kv.tokens, d, weights.data());
    for (float& weight : weights) weight *= scale;
    part.most[g] = *std::max_element(weights.begin(), weights.end());
    if (part.most[g] == -std::numeric_limits<float>::infinity()) continue;  // o and z stay 0
    part.sum[g] = simd::exp_shifted(weights.data(), weights.size(), part.most[g]);
    float* const to = part.out.data() + g * d;
    simd::accumulate_rows(weights.data(), kv.values.data(), kv.tokens, d, to);
    for (std::size_t i = 0; i < d; ++i) to[i] /= part.sum[g];
  }
  return part;
}

PartialAttention attend_partially(const SparqOptions& sparq, std::span<const float> q, const KvView& kv) {
  if (sparq.tokens.at(kv.tokens) >= kv.tokens) return attend_partially(q, kv);
  const std::size_t d = kv.head_dim, group = q.size() / d;
  PartialAttention part{std::vector<float>(q.size()), std::vector<float>(group), std::vector<float>(group)};
  HeadSelection chosen;
  SparqAttention(sparq).attend(q, kv, part.out, &chosen);
  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  std::vector<float> logits(chosen.tokens.size());
  for (std::size_t g = 0; g < group; ++g) {
    for (std::size_t c = 0; c < logits.size(); ++c)
      logits[c] = simd::dot(q.data() + g * d, kv.keys.data() + chosen.tokens[c].value * d, d) * scale;
    part.most[g] = *std::ranges::max_element(logits);
    if (part.most[g] == -std::numeric_limits<float>::infinity()) continue;  // z stays 0
    const float sum = simd::exp_shifted(logits.data(), logits.size(), part.most[g]);
    const float share = sparq.reallocate ? chosen.alpha[g] : 1.0f;
    part.sum[g] = share > 0.0f ? sum / share : sum;
  }
  return part;
}

std::vector<float> merge(std::span<const PartialAttention> parts) {
  if (parts.empty()) throw InternalError("partial attention: nothing to merge");
  const std::size_t group = parts.front().most.size();
  const std::size_t size = parts.front().out.size();
  for (const PartialAttention& part : parts)
    if (part.out.size() != size || part.most.size() != group || part.sum.size() != group)
      throw InternalError("partial attention: parts of different shapes");
  std::vector<float> out(size);
  const std::size_t d = group == 0 ? 0 : size / group;
  for (std::size_t g = 0; g < group; ++g) {
    float most = -std::numeric_limits<float>::infinity();
    for (const PartialAttention& part : parts) most = std::max(most, part.most[g]);
    float total = 0;
    for (const PartialAttention& part : parts) {
      if (part.sum[g] == 0.0f) continue;
      const float weight = part.sum[g] * std::exp(part.most[g] - most);
      total += weight;
      for (std::size_t i = 0; i < d; ++i) out[g * d + i] += weight * part.out[g * d + i];
    }
    if (total == 0.0f) continue;
    for (std::size_t i = 0; i < d; ++i) out[g * d + i] /= total;
  }
  return out;
}

}  // namespace csdsim::host
