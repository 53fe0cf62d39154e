// Dense attention and SparQ written down once more, naively and in double precision, from docs/algorithms.md
// (Dense attention and merging, SparQ).
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "attention_engine/core/sparf.h"

namespace csdsim::engine::test {

using Row = std::vector<double>;
using Matrix = std::vector<Row>;

inline Matrix matrix(const std::vector<Half>& halves, std::size_t d) {
  Matrix m(halves.size() / d, Row(d));
  for (std::size_t i = 0; i < halves.size(); ++i) m[i / d][i % d] = half_to_float(halves[i]);
  return m;
}

inline Row softmax(Row x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& e : x) sum += e = std::exp(e - largest);
  for (double& e : x) e /= sum;
  return x;
}

inline double dot(const Row& a, const Row& b) { return std::inner_product(a.begin(), a.end(), b.begin(), 0.0); }

inline Row attend(const Row& q, const Matrix& k, const Matrix& v, const std::vector<std::uint32_t>& tokens) {
  Row logits;
  for (auto j : tokens) logits.push_back(dot(q, k[j]) / std::sqrt(static_cast<double>(q.size())));
  const Row s = softmax(logits);
  Row out(q.size());
  for (std::size_t c = 0; c < tokens.size(); ++c) {
    for (std::size_t i = 0; i < q.size(); ++i) out[i] += s[c] * v[tokens[c]][i];
  }
  return out;
}

inline std::vector<std::uint32_t> all(std::size_t n) {
  std::vector<std::uint32_t> x(n);
  std::iota(x.begin(), x.end(), 0u);
  return x;
}

inline std::vector<std::uint32_t> largest(const Row& keys, std::size_t count) {
  std::vector<std::uint32_t> order = all(keys.size());
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return keys[a] > keys[b]; });
  order.resize(std::min(count, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

struct Sparq {
  std::vector<std::uint32_t> components, tokens;
  Row alpha;
  Matrix shat, out;
  double margin = 0;  ///< between the smallest chosen and the largest rejected key of J
};

inline Sparq sparq(const Matrix& q, const Matrix& k, const Matrix& v, const SparfParams& p) {
  const std::size_t d = k[0].size(), tokens = k.size(), group = q.size();
  Sparq result;
  Row a(d);
  for (const Row& row : q) {
    for (std::size_t i = 0; i < d; ++i) a[i] += std::abs(row[i]);
  }
  result.components = largest(a, p.r);
  Row key(tokens);
  for (std::size_t g = 0; g < group; ++g) {
    double selected = 0, total = 0;
    for (double x : q[g]) total += std::abs(x);
    for (auto i : result.components) selected += std::abs(q[g][i]);
    const double tau = total == 0 ? std::sqrt(double(d)) : std::sqrt(double(d) * selected / total);
    Row u(tokens);
    for (std::size_t j = 0; j < tokens; ++j) {
      for (auto i : result.components) u[j] += q[g][i] * k[j][i];
      u[j] /= tau;
    }
    result.shat.push_back(softmax(u));
    for (std::size_t j = 0; j < tokens; ++j) {
      key[j] += p.gqa_topk == GqaTopk::sum_logits ? u[j] : result.shat[g][j];
    }
  }
  // +inf for the local tokens, newest first among themselves.
  Row forced = key;
  for (std::size_t j = tokens - std::min<std::size_t>(p.l, tokens); j < tokens; ++j)
    forced[j] = 1e300 + 1e290 * double(j);
  result.tokens = largest(forced, p.k);
  double lowest_in = 1e300, highest_out = -1e300;
  for (std::size_t j = 0; j < tokens; ++j) {
    const bool in = std::binary_search(result.tokens.begin(), result.tokens.end(), j);
    if (in) lowest_in = std::min(lowest_in, forced[j]);
    if (!in) highest_out = std::max(highest_out, forced[j]);
  }
  result.margin = lowest_in - highest_out;
  Row mean(d);
  for (const Row& row : v) {
    for (std::size_t i = 0; i < d; ++i) mean[i] += row[i] / double(tokens);
  }
  for (std::size_t g = 0; g < group; ++g) {
    double alpha = 0;
    for (auto j : result.tokens) alpha += result.shat[g][j];
    if (!p.reallocate) alpha = 1;
    Row out = attend(q[g], k, v, result.tokens);
    for (std::size_t i = 0; i < d; ++i) out[i] = alpha * out[i] + (1 - alpha) * mean[i];
    result.alpha.push_back(alpha);
    result.out.push_back(out);
  }
  return result;
}

}  // namespace csdsim::engine::test
