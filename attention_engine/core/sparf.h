// SparF (InstInfer, algorithm 1): SparQ attention (arXiv 2312.04985) whose two reads are page-granular. Values are
// those of SparQ; only the traffic differs. Symbols as in both papers: r components, k tokens, l local tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "attention_engine/core/kv_source.h"
#include "attention_engine/core/page_groups.h"
#include "attention_engine/core/top_k.h"

namespace csdsim::engine {

/// The rule by which the query heads of a group agree on one token set.
enum class GqaTopk : std::uint8_t {
  sum_logits,  ///< sum over the group of approximate logits (what the SparQ reference code does)
  sum_probs    ///< sum over the group of approximate probabilities
};

/// The paper's budget: the l local tokens and the current token count inside k. (The reference code's budget, where the
/// current token is free, is k + 1 and l + 1 here.)
struct SparfParams {
  std::uint32_t r = 16;   ///< at least 1; r >= d takes every component
  std::uint32_t k = 128;  ///< at least 1
  std::uint32_t l = 32;   ///< newest tokens that are always kept; l >= k keeps the newest k tokens
  GqaTopk gqa_topk = GqaTopk::sum_logits;
  bool reallocate = true;  ///< false: alpha is taken as 1, the mean of V plays no part

  bool operator==(const SparfParams&) const = default;
};

/// A head with S <= k is attended densely and moves no component-major data.
constexpr bool runs_dense(const SparfParams& params, std::uint32_t tokens) { return tokens <= params.k; }

/// One head between the phases of SparF: select_components(); when pages of phase A have arrived, score_tokens() and
/// select_tokens(); when those of phase B have arrived, attend(). One object serves many heads and keeps its buffers.
class SparfAttention {
 public:
  /// Finds I and tau from q [group][d]. Throws InternalError if r or k is 0, q has the wrong size or S <= k.
  void select_components(const KvHeadView& view, const SparfParams& params, std::span<const float> q,
                         std::uint32_t group);
  /// I: the r components with the largest sum over the group of |q|, ascending.
  std::span<const std::uint32_t> components() const { return components_; }
  /// E = {floor(i / m): i in I}.
  const PageGroups& embedding_groups() const { return embedding_groups_; }
  /// tau[g] = sqrt(d * sum_{i in I} |q[g,i]| / sum_i |q[g,i]|), sqrt(d) for q = 0.
  std::span<const float> tau() const { return tau_; }

  /// Approximate logits of all tokens: from embedding pages below S_e, from token rows above.
  void score_tokens(const KvSource& source, HeadKey key);
  /// u[g][j], [G][S].
  std::span<const float> logits() const { return logits_; }

  /// J and alpha from the approximate logits.
  void select_tokens();
  /// J, ascending.
  std::span<const std::uint32_t> tokens() const { return tokens_; }
  /// U = {floor(j / n): j in J, j flushed}.
  const PageGroups& token_groups() const { return token_groups_; }
  /// alpha[g]: the approximate probability mass of J.
  std::span<const float> alpha() const { return alpha_; }

  /// out[g] = alpha[g] * softmax_J(q[g] K_J^T / sqrt(d)) V_J + (1 - alpha[g]) * mean(V), out is [G][d].
  void attend(const KvSource& source, HeadKey key, std::span<float> out);
  /// K_J of the last attend(), [|J|] rows of [d], as long as the source keeps them.
  std::span<const Half* const> key_rows() const { return key_rows_; }

 private:
  void score_embedding_pages(const KvSource& source, HeadKey key);
  void score_token_rows(const KvSource& source, HeadKey key, std::uint32_t first);
  void form_keys(std::span<const float> sums);
  void share_without(std::span<const TokenRange> dropped);
  void find_rows(const KvSource& source, HeadKey key, KvKind kind, std::vector<const Half*>& rows);

  KvHeadView view_;
  SparfParams params_;
  std::uint32_t group_ = 0;
  TopK top_k_;
  std::vector<float> q_;  ///< [G][d]
  std::vector<float> magnitudes_;
  std::vector<float> tau_;
  std::vector<float> sparse_q_;  ///< [G][|I|], q[g,I]
  std::vector<std::uint32_t> components_;
  PageGroups embedding_groups_;
  std::vector<float> logits_;
  std::vector<float> probabilities_;  ///< [G][S], shat times its sum
  std::vector<float> keys_;
  std::vector<Half> runs_;  ///< scratch, component-major copy of some token rows
  std::vector<std::uint32_t> tokens_;
  PageGroups token_groups_;
  std::vector<float> alpha_;
  std::vector<const Half*> key_rows_;  ///< key rows of the tokens in J
  std::vector<const Half*> value_rows_;
  std::vector<std::uint32_t> wanted_;  ///< scratch: rows or runs of a page
  std::vector<const Half*> passed_;    ///< scratch: [|I|], runs of a window
  std::vector<float> weights_;         ///< [G][|J|]
};

}  // namespace csdsim::engine
