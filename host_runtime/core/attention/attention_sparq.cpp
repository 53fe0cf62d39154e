#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/simd.h"
#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {
namespace {

// Approximate logits of all tokens for one query head: sum over the chosen components, ascending, of q K / tau.
std::vector<float> approximate_logits(const float* q, std::span<const std::uint32_t> components, const KvView& kv) {
  float chosen = 0, all = 0;
  for (const std::uint32_t i : components) chosen += std::abs(q[i]);
  for (std::size_t i = 0; i < kv.head_dim; ++i) all += std::abs(q[i]);
  const auto d = static_cast<float>(kv.head_dim);
  // A query (or its chosen part) of zeros scores every token 0, whatever tau is. The product has the order of the
  // drive: the bits of heads that are no power of two depend on it.
  const float tau = std::sqrt(d * (chosen > 0 && components.size() < kv.head_dim ? chosen / all : 1));
  std::vector<float> logits(kv.tokens, 0.0f);
  for (const std::uint32_t i : components) {
    simd::axpy(q[i], kv.component_keys.data() + i * kv.component_stride, logits.data(), kv.tokens);
  }
  for (float& logit : logits) logit /= tau;
  return logits;
}

// The newest `local` tokens and the best of the others, ascending.
std::vector<std::uint32_t> choose_tokens(std::span<const float> keys, std::size_t count, std::size_t local) {
  local = std::min(local, count);
  std::vector<std::uint32_t> chosen = top_indices(keys.first(keys.size() - local), count - local);
  for (std::size_t j = keys.size() - local; j < keys.size(); ++j) chosen.push_back(static_cast<std::uint32_t>(j));
  return chosen;
}

// The mean value of the tokens that are not chosen, which are not none.
std::vector<float> mean_of_rest(const KvView& kv, std::span<const std::uint32_t> chosen) {
  std::vector<float> sum(kv.head_dim, 0.0f);
  for (const std::uint32_t j : chosen) simd::axpy(1.0f, kv.values.data() + j * kv.head_dim, sum.data(), kv.head_dim);
  const auto tokens = static_cast<float>(kv.tokens), rest = static_cast<float>(kv.tokens - chosen.size());
  for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = (tokens * kv.value_mean[i] - sum[i]) / rest;
  return sum;
}

}  // namespace

SparqAttention::SparqAttention(const SparqOptions& options, std::string_view name) : options_(options), name_(name) {
  if (options.components == 0) throw UserError("sparq: r (components) is 0, at least 1 is needed");
  if (options.tokens.is_zero()) throw UserError("sparq: k (tokens) is 0, at least 1 is needed");
}

void SparqAttention::attend(std::span<const float> q, const KvView& kv, std::span<float> out,
                            HeadSelection* selection) const {
  const std::uint32_t count = options_.tokens.at(kv.tokens);
  if (count >= kv.tokens) return DenseAttention().attend(q, kv, out, selection);
  const std::size_t d = kv.head_dim;
  if (q.size() != out.size() || q.size() % d != 0) throw InternalError("sparq: q and out must agree");
  if (kv.component_keys.empty()) throw InternalError("sparq: the cache has no component-major keys");
  const std::size_t group = q.size() / d;
  std::vector<float> magnitude(d, 0.0f);
  for (std::size_t i = 0; i < q.size(); ++i) magnitude[i % d] += std::abs(q[i]);
  const std::vector<std::uint32_t> components = top_indices(magnitude, options_.components);

  // Per query head: exp(logit - max) of every token and their sum, once the logits have served as keys.
  std::vector<float> keys(kv.tokens, 0.0f), sums(group);
  std::vector<std::vector<float>> weights(group);
  for (std::size_t g = 0; g < group; ++g) {
    std::vector<float>& w = weights[g] = approximate_logits(q.data() + g * d, components, kv);
    if (options_.group_top_k == GroupTopK::sum_logits || group == 1) {
      for (std::size_t j = 0; j < w.size(); ++j) keys[j] += w[j];
    }
    sums[g] = simd::exp_shifted(w.data(), w.size(), *std::max_element(w.begin(), w.end()));
    if (options_.group_top_k == GroupTopK::sum_probabilities && group > 1) {
      for (std::size_t j = 0; j < w.size(); ++j) keys[j] += w[j] / sums[g];
    }
  }
  const std::vector<std::uint32_t> chosen = choose_tokens(keys, count, options_.local.value_or(count / 4));

  attend_tokens(q, kv, chosen, out);
  describe_selection(chosen, kv.tokens * components.size() + 2 * chosen.size() * d, selection);
  if (selection != nullptr) selection->components = components;
  std::vector<float> mean(kv.value_mean.begin(), kv.value_mean.end());
  if (options_.mean == MeanValue::rest) mean = mean_of_rest(kv, chosen);
  for (std::size_t g = 0; g < group; ++g) {
    float mass = 0;
    for (const std::uint32_t j : chosen) mass += weights[g][j];
    const float share = std::min(mass / sums[g], 1.0f);  // rounding may carry it beyond 1
    const float alpha = options_.reallocate ? share : 1.0f;
    float* to = out.data() + g * d;
    for (std::size_t i = 0; i < d; ++i) to[i] = alpha * to[i] + (1.0f - alpha) * mean[i];
    if (selection != nullptr) selection->alpha.push_back(share);
  }
}

}  // namespace csdsim::host
