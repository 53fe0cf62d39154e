#include "attention_engine/core/sparf.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention_engine/core/exponentials.h"
#include "base/error.h"
#include "base/simd.h"

namespace csdsim::engine {
void SparfAttention::select_components(const KvHeadView& view, const SparfParams& params, std::span<const float> q,
                                       std::uint32_t group) {
  const std::size_t d = view.head_dim;
  if (params.r == 0 || params.k == 0) throw InternalError("SparF: r and k must be at least 1");
  if (q.size() != group * d) throw InternalError("SparF: q must be [group][d]");
  if (runs_dense(params, view.tokens)) throw InternalError("SparF: a head with S <= k is to be attended densely");
  view_ = view;
  params_ = params;
  group_ = group;
  q_.assign(q.begin(), q.end());

  magnitudes_.assign(d, 0.0f);
  for (std::size_t g = 0; g < group; ++g) {
    for (std::size_t i = 0; i < d; ++i) magnitudes_[i] += std::abs(q[g * d + i]);
  }
  top_k_.select(magnitudes_, params.r, components_);
  embedding_groups_.assign(components_, view.embedding_group, view.head_dim);

  tau_.resize(group);
  sparse_q_.resize(group * components_.size());
  for (std::size_t g = 0; g < group; ++g) {
    float all = 0, selected = 0;
    for (std::size_t i = 0; i < d; ++i) all += std::abs(q[g * d + i]);
    for (const std::uint32_t i : components_) selected += std::abs(q[g * d + i]);
    // A query head may be 0 on I without being 0: its logits are 0 whatever tau is.
    const bool degenerate = all == 0.0f || selected == 0.0f;
    tau_[g] = std::sqrt(static_cast<float>(d) * (degenerate || components_.size() == d ? 1.0f : selected / all));
    for (std::size_t c = 0; c < components_.size(); ++c) {
      sparse_q_[g * components_.size() + c] = q[g * d + components_[c]];
    }
  }
}

// Both layouts add component after component in ascending order to each token's logit, with the same vector
// multiply-add: the logit of a token does not depend on where its key is read.
void SparfAttention::score_embedding_pages(const KvSource& source, HeadKey key) {
  const std::uint32_t end = view_.transposed_tokens;
  KvWindowView window;
  for (std::uint32_t w = 0; window.first + window.tokens < end; ++w) {
    window = source.window(key, w);
    const std::uint32_t tokens = std::min(window.tokens, end - window.first);
    passed_.clear();
    for (std::size_t c = 0; c < components_.size();) {
      const std::uint32_t page = components_[c] / window.group;
      wanted_.clear();
      for (; c < components_.size() && components_[c] / window.group == page; ++c)
        wanted_.push_back(components_[c] % window.group);
      source.passed_runs(key, page, w, wanted_, passed_);
    }
    for (std::size_t c = 0; c < components_.size(); ++c) {
      for (std::size_t g = 0; g < group_; ++g) {
        simd::axpy(sparse_q_[g * components_.size() + c], passed_[c], logits_.data() + g * view_.tokens + window.first,
                   tokens);
      }
    }
  }
}

void SparfAttention::score_token_rows(const KvSource& source, HeadKey key, std::uint32_t first) {
  constexpr std::uint32_t kChunk = 128;  // tokens; a chunk's runs stay in the L1 cache
  const std::uint32_t n = view_.tokens_per_page;
  const std::size_t d = view_.head_dim, r = components_.size();
  runs_.resize(r * kChunk);
  for (; first < view_.tokens; first += kChunk) {
    const std::uint32_t count = std::min(kChunk, view_.tokens - first);
    const Half* rows = nullptr;
    for (std::uint32_t t = 0; t < count; ++t) {
      const std::uint32_t j = first + t;
      if (rows == nullptr || j % n == 0) rows = source.token_rows(key, KvKind::key, j / n);
      const Half* row = rows + (j % n) * d;
      for (std::size_t c = 0; c < r; ++c) runs_[c * kChunk + t] = row[components_[c]];
    }
    for (std::size_t c = 0; c < r; ++c) {
      for (std::size_t g = 0; g < group_; ++g) {
        simd::axpy(sparse_q_[g * r + c], runs_.data() + c * kChunk, logits_.data() + g * view_.tokens + first, count);
      }
    }
  }
}

void SparfAttention::form_keys(std::span<const float> sums) {
  const std::size_t tokens = view_.tokens;
  keys_.assign(tokens, 0.0f);
  for (std::size_t g = 0; g < group_; ++g) {
    const bool logits = params_.gqa_topk == GqaTopk::sum_logits || group_ == 1;
    for (std::size_t j = 0; j < tokens; ++j) {
      keys_[j] += logits ? logits_[g * tokens + j] : probabilities_[g * tokens + j] / sums[g];
    }
  }
}

void SparfAttention::score_tokens(const KvSource& source, HeadKey key) {
  logits_.assign(std::size_t{group_} * view_.tokens, 0.0f);
  score_embedding_pages(source, key);
  score_token_rows(source, key, view_.transposed_tokens);
  const std::vector<TokenRange> dropped = source.dropped(key);
  for (std::size_t g = 0; g < group_; ++g) {
    for (std::size_t j = 0; j < view_.tokens; ++j) logits_[g * view_.tokens + j] /= tau_[g];
    leave_out(dropped, logits_.data() + g * view_.tokens);
  }
}

void SparfAttention::select_tokens() {
  const std::size_t tokens = view_.tokens;
  probabilities_ = logits_;
  std::vector<float> sums(group_);
  for (std::size_t g = 0; g < group_; ++g) sums[g] = exponentials(probabilities_.data() + g * tokens, tokens).sum;

  // The forced local tokens take min(l, k) places, newest first; the largest keys of the older tokens take the rest.
  const std::uint32_t local = std::min(params_.l, params_.k);
  const auto older = static_cast<std::uint32_t>(tokens) - local;
  form_keys(sums);
  top_k_.select(std::span<const float>(keys_).first(older), params_.k - local, tokens_);
  for (std::uint32_t j = older; j < tokens; ++j) tokens_.push_back(j);
  token_groups_.assign(tokens_, view_.tokens_per_page, view_.flushed_tokens);

  alpha_.assign(group_, 0.0f);
  for (std::size_t g = 0; g < group_; ++g) {
    for (const std::uint32_t j : tokens_) alpha_[g] += probabilities_[g * tokens + j];
    // Rounding may carry the share beyond 1.
    alpha_[g] = sums[g] == 0.0f ? 0.0f : std::min(alpha_[g] / sums[g], 1.0f);
  }
}

/// Pages of chosen tokens have turned out to be lost: alpha is the share of the others.
void SparfAttention::share_without(std::span<const TokenRange> dropped) {
  const std::size_t tokens = view_.tokens;
  for (std::size_t g = 0; g < group_; ++g) {
    float* const shares = probabilities_.data() + g * tokens;
    for (const TokenRange& range : dropped) std::fill(shares + range.first, shares + range.end, 0.0f);
    float all = 0, chosen = 0;
    for (std::size_t j = 0; j < tokens; ++j) all += shares[j];
    for (const std::uint32_t j : tokens_) chosen += shares[j];
    alpha_[g] = all == 0.0f ? 0.0f : std::min(chosen / all, 1.0f);
  }
}

// All rows are asked for before the first is used: scattered rows cost latency, not bandwidth.
void SparfAttention::find_rows(const KvSource& source, HeadKey key, KvKind kind, std::vector<const Half*>& rows) {
  const std::uint32_t n = view_.tokens_per_page;
  const std::size_t d = view_.head_dim;
  rows.clear();
  for (std::size_t i = 0; i < tokens_.size();) {
    const std::uint32_t page = tokens_[i] / n;
    const std::size_t before = rows.size();
    wanted_.clear();
    for (; i < tokens_.size() && tokens_[i] / n == page; ++i) wanted_.push_back(tokens_[i] % n);
    if (page < view_.flushed_groups()) {
      source.passed_rows(key, kind, page, wanted_, rows);
    } else {
      const Half* const tail = source.token_rows(key, kind, page);
      for (const std::uint32_t row : wanted_) rows.push_back(tail + row * d);
    }
    for (std::size_t row = before; row < rows.size(); ++row) simd::prefetch(rows[row], d);
  }
}

void SparfAttention::attend(const KvSource& source, HeadKey key, std::span<float> out) {
  const std::size_t d = view_.head_dim, count = tokens_.size();
  if (out.size() != group_ * d) throw InternalError("SparF: out must be [group][d]");
  find_rows(source, key, KvKind::key, key_rows_);
  find_rows(source, key, KvKind::value, value_rows_);

  const float scale = 1.0f / std::sqrt(static_cast<float>(d));
  weights_.resize(group_ * count);
  std::vector<float> sums(group_);
  const std::vector<TokenRange> dropped = source.dropped(key);
  if (!dropped.empty()) share_without(dropped);
  for (std::size_t g = 0; g < group_; ++g) {
    float* w = weights_.data() + g * count;
    for (std::size_t c = 0; c < count; ++c) {
      w[c] = simd::dot(q_.data() + g * d, key_rows_[c], d) * scale;
      if (!dropped.empty() && left_out(dropped, tokens_[c])) w[c] = -std::numeric_limits<float>::infinity();
    }
    sums[g] = exponentials(w, count).sum;
  }

  std::fill(out.begin(), out.end(), 0.0f);
  for (std::size_t g = 0; g < group_; ++g) {
    for (std::size_t c = 0; c < count; ++c) {
      simd::axpy(weights_[g * count + c], value_rows_[c], out.data() + g * d, d);
    }
    for (std::size_t i = 0; i < d && sums[g] != 0.0f; ++i) out[g * d + i] /= sums[g];
  }
  if (!params_.reallocate) return;
  const std::span<const float> mean = source.value_mean(key);
  for (std::size_t g = 0; g < group_; ++g) {
    for (std::size_t i = 0; i < d; ++i) {
      float& o = out[g * d + i];
      o = alpha_[g] * o + (1.0f - alpha_[g]) * mean[i];
    }
  }
}

}  // namespace csdsim::engine
