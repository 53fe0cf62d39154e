// Attention of one decode step on the host, over fp16 K and V. Every method uses the primitives and the order of
// base/simd.h, so that another implementation which does the same gets the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "host_runtime/core/kv_cache.h"

namespace csdsim::host {

/// What a method read and kept for one KV head: diagnostics, and the input of selection statistics.
struct HeadSelection {
  std::vector<std::uint32_t> components;  ///< key components scored, ascending; empty where no scoring took place
  std::vector<TokenIndex> tokens;         ///< tokens attended to, ascending
  std::vector<float> alpha;               ///< share of (approximate) attention mass on `tokens`, per query head
};

/// A method of attention. q holds the query heads that share one KV head, [group][head_dim], unscaled; out is
/// [group][head_dim]. kv includes the current token. Arithmetic is fp32; logits are scaled by 1/sqrt(head_dim) where
/// the method does not say otherwise.
class AttentionMethod {
 public:
  virtual ~AttentionMethod() = default;
  virtual std::string_view name() const = 0;
  /// The layouts of K that attend() needs.
  virtual KeyLayout key_layout() const { return KeyLayout::token_major; }
  /// `selection` may be null. A cache without tokens gives 0.
  virtual void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
                      HeadSelection* selection) const = 0;
};

/// softmax(q K^T / sqrt(d)) V: scores in token order, maximum, exp and sum, values accumulated in token order, one
/// division at the end (algorithms note, section 1).
class DenseAttention final : public AttentionMethod {
 public:
  std::string_view name() const override { return "dense"; }
  void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
              HeadSelection* selection) const override;
};

/// How the logits of a KV group are combined into one key for choosing tokens. The same for a group of one.
enum class GroupTopK : std::uint8_t { sum_logits, sum_probabilities };

struct SparqOptions {
  std::uint32_t components = 16;  ///< r: key components that the approximate logits use; at least 1
  std::uint32_t tokens = 128;     ///< k: tokens attended to, local ones and the current one included; at least 1
  std::uint32_t local = 32;       ///< l: newest tokens that are always attended to; counts as k if larger
  bool reallocate = true;         ///< give the mass of the other tokens to the mean value; otherwise alpha is 1
  GroupTopK group_top_k = GroupTopK::sum_logits;
};

/// SparQ (arXiv 2312.04985), paper's budget convention; values are those of SparF (algorithms note, section 2).
/// The r components with the largest sum of |q| over the group score all tokens; the k best are attended to exactly.
/// With at most k tokens it is dense attention. Ties go to the lower index.
class SparqAttention final : public AttentionMethod {
 public:
  /// UserError if components or tokens is 0.
  explicit SparqAttention(const SparqOptions& options);
  std::string_view name() const override { return "sparq"; }
  KeyLayout key_layout() const override { return KeyLayout::token_and_component_major; }
  void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
              HeadSelection* selection) const override;

 private:
  SparqOptions options_;
};

/// Indices of the `count` largest keys, ascending by index; equal keys: the lower index first. NaN counts as smallest.
std::vector<std::uint32_t> top_indices(std::span<const float> keys, std::size_t count);

}  // namespace csdsim::host
