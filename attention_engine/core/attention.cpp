#include "attention_engine/core/attention.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "attention_engine/core/exponentials.h"
#include "base/error.h"
#include "base/simd.h"

namespace csdsim::engine {
namespace {

/// Up to four consecutive token groups.
struct Batch {
  std::array<const Half*, 4> rows{};
  std::uint32_t full = 0;  ///< groups of n tokens among them

  /// The part of this batch to prefetch while group `part` of the previous batch is read: a quarter of every page.
  simd::Ahead quarter(std::uint32_t part, std::size_t page) const {
    simd::Ahead ahead;
    for (std::uint32_t i = 0; i < rows.size(); ++i) ahead.streams[i] = rows[i < full ? i : 0] + part * (page / 4);
    return ahead;
  }
};

Batch batch_at(const KvSource& source, HeadKey key, KvKind kind, const KvHeadView& view, std::uint32_t group) {
  const std::uint32_t n = view.tokens_per_page;
  Batch batch;
  for (std::uint32_t i = 0; i < batch.rows.size() && (group + i) * n < view.tokens; ++i) {
    batch.rows[i] = source.token_rows(key, kind, group + i);
    if ((group + i + 1) * n <= view.tokens) ++batch.full;
  }
  return batch;
}

/// Calls visit(rows, first token, count, ahead) for every token group of the head, in token order. `now` is its first
/// batch, `then` (may be null) what the caller reads afterwards.
template <class Visit>
void for_each_group(const KvSource& source, HeadKey key, KvKind kind, const KvHeadView& view, Batch now,
                    const Batch* then, Visit visit) {
  const std::uint32_t n = view.tokens_per_page, abreast = static_cast<std::uint32_t>(now.rows.size());
  const std::size_t page = std::size_t{n} * view.head_dim;
  for (std::uint32_t first = 0; first < view.tokens; first += abreast * n) {
    const std::uint32_t after = first + abreast * n;
    Batch next;
    if (after < view.tokens) {
      next = batch_at(source, key, kind, view, after / n);
    } else if (then != nullptr) {
      next = *then;
    }
    for (std::uint32_t i = 0; i < abreast && first + i * n < view.tokens; ++i) {
      const std::uint32_t token = first + i * n;
      const simd::Ahead ahead = next.full == 0 ? simd::Ahead{} : next.quarter(i, page);
      visit(now.rows[i], token, std::min(n, view.tokens - token), next.full == 0 ? nullptr : &ahead);
    }
    now = next;
  }
}

void require(bool condition, const char* what) {
  if (!condition) throw InternalError(what);
}

}  // namespace

void DenseAttention::attend(const KvSource& source, HeadKey key, std::span<const float> q, std::uint32_t group,
                            std::span<float> out, std::span<SoftmaxSums> softmax) {
  const KvHeadView view = source.view(key);
  const std::size_t d = view.head_dim, tokens = view.tokens;
  require(q.size() == group * d && out.size() == group * d, "dense attention: q and out must be [group][d]");
  require(softmax.empty() || softmax.size() == group, "dense attention: softmax must be [group]");
  std::fill(out.begin(), out.end(), 0.0f);

  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  weights_.resize(group * tokens);
  const Batch keys = batch_at(source, key, KvKind::key, view, 0);
  const Batch values = batch_at(source, key, KvKind::value, view, 0);
  for_each_group(source, key, KvKind::key, view, keys, &values,
                 [&](const Half* rows, std::uint32_t first, std::uint32_t count, const simd::Ahead* ahead) {
                   simd::gemv_rows_group(q.data(), group, rows, count, d, weights_.data() + first, tokens, ahead);
                 });
  std::vector<float> sums(group);
  const std::vector<TokenRange> dropped = source.dropped(key);
  for (std::size_t g = 0; g < group; ++g) {
    float* w = weights_.data() + g * tokens;
    for (std::size_t j = 0; j < tokens; ++j) w[j] *= scale;
    leave_out(dropped, w);
    const Exponentials weights = exponentials(w, tokens);
    sums[g] = weights.sum;
    if (!softmax.empty()) softmax[g] = {weights.largest, weights.sum};
  }
  for_each_group(source, key, KvKind::value, view, values, nullptr,
                 [&](const Half* rows, std::uint32_t first, std::uint32_t count, const simd::Ahead* ahead) {
                   simd::accumulate_rows_group(weights_.data() + first, tokens, group, rows, count, d, out.data(),
                                               ahead);
                 });
  for (std::size_t g = 0; g < group; ++g) {
    if (sums[g] == 0.0f) continue;
    for (std::size_t i = 0; i < d; ++i) out[g * d + i] /= sums[g];
  }
}

void score_head(const KvSource& source, HeadKey key, ScorePrecision precision, std::span<const float> q,
                std::uint32_t group, std::uint32_t first, std::uint32_t end, std::span<float> scores) {
  const KvHeadView view = source.view(key);
  const std::uint32_t n = view.tokens_per_page;
  require(first < end && end <= view.tokens, "score: the range of tokens is empty or ends beyond the head's cache");
  require(q.size() == std::size_t{group} * view.head_dim && scores.size() == std::size_t{group} * (end - first),
          "score: q must be [group][d] and scores [group][tokens]");
  const ScoringQueries queries(precision, q, group);
  for (std::uint32_t token = first; token < end;) {
    const std::uint32_t count = std::min(end, (token / n + 1) * n) - token;
    const Half* rows = source.token_rows(key, KvKind::key, token / n) + std::size_t{token % n} * view.head_dim;
    queries.score(rows, count, scores.data() + (token - first), end - first);
    token += count;
  }
}

void fetch_rows(const KvSource& source, HeadKey key, KvKind kind, std::span<const std::uint32_t> tokens,
                std::span<Half> out) {
  const KvHeadView view = source.view(key);
  const std::size_t d = view.head_dim;
  require(out.size() == tokens.size() * d, "fetch: out must be [tokens][d]");
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    require(tokens[i] < view.tokens, "fetch: token beyond the head's cache");
    const Half* rows = source.token_rows(key, kind, tokens[i] / view.tokens_per_page);
    std::copy_n(rows + (tokens[i] % view.tokens_per_page) * d, d, out.data() + i * d);
  }
}

}  // namespace csdsim::engine
