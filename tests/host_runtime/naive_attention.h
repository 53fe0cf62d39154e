// Attention straight from the definitions, in double, over token-major K and V only.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "host_runtime/core/attention/attention.h"

namespace csdsim::test {

inline std::vector<double> softmax(std::vector<double> x) {
  const double max = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - max);
  for (double& v : x) v /= sum;
  return x;
}

inline double key(const host::KvView& kv, std::size_t token, std::size_t i) {
  return half_to_float(kv.keys[token * kv.head_dim + i]);
}
inline double value(const host::KvView& kv, std::size_t token, std::size_t i) {
  return half_to_float(kv.values[token * kv.head_dim + i]);
}

// softmax(q . K[tokens] / sqrt(d)) V[tokens] for one query head.
inline std::vector<double> attend_to(const float* q, const host::KvView& kv, const std::vector<std::uint32_t>& tokens) {
  const std::size_t d = kv.head_dim;
  std::vector<double> logits, out(d, 0.0);
  for (const auto j : tokens) {
    double dot = 0;
    for (std::size_t i = 0; i < d; ++i) dot += q[i] * key(kv, j, i);
    logits.push_back(dot / std::sqrt(static_cast<double>(d)));
  }
  const auto weights = softmax(logits);
  for (std::size_t n = 0; n < tokens.size(); ++n) {
    for (std::size_t i = 0; i < d; ++i) out[i] += weights[n] * value(kv, tokens[n], i);
  }
  return out;
}

inline std::vector<double> naive_dense(const std::vector<float>& q, const host::KvView& kv) {
  std::vector<std::uint32_t> all(kv.tokens);
  std::iota(all.begin(), all.end(), 0u);
  std::vector<double> out;
  for (std::size_t g = 0; g * kv.head_dim < q.size(); ++g) {
    const auto head = attend_to(q.data() + g * kv.head_dim, kv, all);
    out.insert(out.end(), head.begin(), head.end());
  }
  return out;
}

struct NaiveSparq {
  std::vector<std::uint32_t> components, tokens;
  std::vector<double> alpha, out;
  double cut_margin = 0;  // key of the last token chosen minus the best of the others
};

// The ten steps of SparQ as numbered in docs/algorithms.md.
inline NaiveSparq naive_sparq(const std::vector<float>& q, const host::KvView& kv, const host::SparqOptions& options) {
  const std::size_t d = kv.head_dim, group = q.size() / d, s = kv.tokens;
  const auto best_first = [](const std::vector<double>& keys) {
    std::vector<std::uint32_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0u);
    std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
    return order;
  };
  NaiveSparq result;
  std::vector<double> a(d, 0.0);
  for (std::size_t n = 0; n < q.size(); ++n) a[n % d] += std::abs(static_cast<double>(q[n]));
  result.components = best_first(a);
  result.components.resize(std::min<std::size_t>(options.components, d));

  std::vector<std::vector<double>> shat;
  std::vector<double> keys(s, 0.0);
  for (std::size_t g = 0; g < group; ++g) {
    double chosen = 0, all = 0;
    for (const auto i : result.components) chosen += std::abs(static_cast<double>(q[g * d + i]));
    for (std::size_t i = 0; i < d; ++i) all += std::abs(static_cast<double>(q[g * d + i]));
    const double tau = std::sqrt(static_cast<double>(d) * chosen / all);
    std::vector<double> u(s, 0.0);
    for (std::size_t j = 0; j < s; ++j) {
      for (const auto i : result.components) u[j] += q[g * d + i] * key(kv, j, i);
      u[j] /= tau;
    }
    shat.push_back(softmax(u));
    const bool logits = group == 1 || options.group_top_k == host::GroupTopK::sum_logits;
    for (std::size_t j = 0; j < s; ++j) keys[j] += logits ? u[j] : shat[g][j];
  }
  const std::size_t k = options.tokens.at(s);
  const std::size_t local = std::min<std::size_t>(options.local.value_or(static_cast<std::uint32_t>(k / 4)), k);
  for (std::size_t j = s - local; j < s; ++j) keys[j] = INFINITY;
  const auto order = best_first(keys);
  result.tokens.assign(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(k));
  if (k < s) result.cut_margin = keys[order[k - 1]] - keys[order[k]];
  std::sort(result.tokens.begin(), result.tokens.end());
  std::sort(result.components.begin(), result.components.end());

  for (std::size_t g = 0; g < group; ++g) {
    double mass = 0;
    for (const auto j : result.tokens) mass += shat[g][j];
    result.alpha.push_back(mass);
    const double alpha = options.reallocate ? mass : 1.0;
    const auto o = attend_to(q.data() + g * d, kv, result.tokens);
    for (std::size_t i = 0; i < d; ++i) {
      double mean = 0;
      std::size_t averaged = 0;
      for (std::uint32_t j = 0; j < s; ++j) {
        const bool chosen = std::binary_search(result.tokens.begin(), result.tokens.end(), j);
        if (chosen && options.mean == host::MeanValue::rest) continue;
        mean += value(kv, j, i);
        ++averaged;
      }
      mean /= static_cast<double>(averaged);
      result.out.push_back(alpha * o[i] + (1 - alpha) * mean);
    }
  }
  return result;
}

}  // namespace csdsim::test
