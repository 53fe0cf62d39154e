// Attention of one decode step on the host, over fp16 K and V. Every method uses the primitives and the summation order
// of base/simd.h, so that another implementation that does the same gets identical bits.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/core/attention/token_budget.h"

namespace csdsim::host {

/// What a method read and selected for one KV head, for diagnostics and for statistics of selections.
struct HeadSelection {
  std::vector<std::uint32_t> components;  ///< key components scored, ascending; empty where no scoring took place
  std::vector<TokenIndex> tokens;         ///< tokens attended to, ascending
  /// The method's own estimate of the share of the attention mass on `tokens`, per query head: SparQ's alpha. Empty for
  /// methods without such an estimate.
  std::vector<float> alpha;
  /// Share of the tokens that exact scores choose which the method chose, without the current one. Unset for methods
  /// that do not score in low precision.
  std::optional<float> recall;
  /// Elements of fp16 size that were read to choose and to attend: K, V, and what was derived from them (partial or
  /// quantised keys, bounds), wherever it is kept. Dense attention reads 2 S d.
  std::uint64_t elements = 0;
};

/// One decode step of one layer of one sequence.
struct LayerStep {
  SequenceId sequence;
  LayerId layer;
  std::uint32_t group = 1;        ///< query heads per KV head
  std::span<const float> q;       ///< [kv_heads][group][head_dim], unscaled
  std::span<const KvView> heads;  ///< by KV head, the current token included
};

/// The data of a prompt, with dense attention, from which a method may learn.
struct LayerPrompt {
  SequenceId sequence;
  LayerId layer;
  std::uint32_t group = 1;
  std::span<const float> q;       ///< [tokens][kv_heads][group][head_dim], unscaled
  std::span<const KvView> heads;  ///< by KV head, holding the prompt
};

/// A method of attention. Arithmetic is fp32; logits are scaled by 1/sqrt(head_dim) unless the method says otherwise.
/// Objects may keep state by (sequence, layer, KV head): steps of a layer come in token order.
class AttentionMethod {
 public:
  virtual ~AttentionMethod() = default;
  virtual std::string_view name() const = 0;
  /// The layouts of K that attend_layer() needs.
  virtual KeyLayout key_layout() const { return KeyLayout::token_major; }

  /// True if learn() must be called, once per layer, when a prompt is in the cache.
  virtual bool learns_from_prompt() const { return false; }
  virtual void learn(const LayerPrompt&) {}
  /// True if speculate() must be called before each attend_layer(), except for layer 0.
  virtual bool speculates() const { return false; }
  /// q [kv_heads][group][head_dim] of `layer`, computed ahead from the input of the layer before it.
  virtual void speculate(SequenceId, LayerId, std::span<const float>) {}

  /// out is [kv_heads][group][head_dim]. `selections` is empty or has one element per KV head. A cache without tokens
  /// gives 0.
  virtual void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) = 0;
  /// Drops the state of a sequence.
  virtual void forget(SequenceId) {}
};

/// A method that treats every KV head by itself and keeps no state.
class HeadAttention : public AttentionMethod {
 public:
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) final;
  /// q holds the query heads that share one KV head, [group][head_dim], unscaled; out is [group][head_dim]. kv includes
  /// the current token. `selection` may be null. A cache without tokens gives 0.
  virtual void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
                      HeadSelection* selection) const = 0;
};

/// softmax(q K^T / sqrt(d)) V: scores in token order, maximum, exp and sum, values accumulated in token order, one
/// division at the end (docs/algorithms.md, Dense attention and merging).
class DenseAttention final : public HeadAttention {
 public:
  std::string_view name() const override { return "dense"; }
  void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
              HeadSelection* selection) const override;
};

/// How the logits of a KV group are combined into one key for choosing tokens. The same for a group of one.
enum class GroupTopK : std::uint8_t { sum_logits, sum_probabilities };

/// Which mean value replaces the tokens that are not attended to. SparQ takes the mean over the whole cache, which
/// counts the attended tokens a second time: the larger k is, the more it differs from the mean of the others. The mean
/// of the rest can be computed from it and the attended values, without further reads.
enum class MeanValue : std::uint8_t { all, rest };

struct SparqOptions {
  std::uint32_t components = 16;  ///< r: key components that the approximate logits use; at least 1
  TokenBudget tokens = 128;       ///< k: tokens attended to, local ones and the current one included; at least 1
  /// l: newest tokens that are always attended to; counts as k if larger. Unset: a quarter of k.
  std::optional<std::uint32_t> local = 32;
  bool reallocate = true;  ///< give the mass of the other tokens to the mean value; otherwise alpha is 1
  GroupTopK group_top_k = GroupTopK::sum_logits;
  MeanValue mean = MeanValue::all;
};

/// SparQ (arXiv 2312.04985), paper's budget convention; values are those of SparF (docs/algorithms.md, SparQ).
/// The r components with the largest sum of |q| over the group score all tokens; the k best are attended to exactly.
/// With at most k tokens it is dense attention. Ties go to the lower index.
class SparqAttention final : public HeadAttention {
 public:
  /// UserError if components or tokens is 0.
  explicit SparqAttention(const SparqOptions& options, std::string_view name = "sparq");
  std::string_view name() const override { return name_; }
  KeyLayout key_layout() const override { return KeyLayout::token_and_component_major; }
  void attend(std::span<const float> q, const KvView& kv, std::span<float> out,
              HeadSelection* selection) const override;

 private:
  SparqOptions options_;
  std::string_view name_;
};

/// Softmax attention of the query heads q [group][head_dim] over the chosen tokens only, which ascend: dense attention
/// bit for bit if they are all. out is [group][head_dim]. `weights`, if given, becomes [group][chosen], each row adding
/// up to 1. No token gives 0.
void attend_tokens(std::span<const float> q, const KvView& kv, std::span<const std::uint32_t> chosen,
                   std::span<float> out, std::vector<float>* weights = nullptr);

/// Fills a selection of `chosen`, `elements` read, without components and alpha. Null: does nothing.
void describe_selection(std::span<const std::uint32_t> chosen, std::uint64_t elements, HeadSelection* selection);

/// Share of the exact softmax mass of each query head on `tokens`, [group]: in [0, 1].
std::vector<float> attention_mass(std::span<const float> q, const KvView& kv, std::span<const TokenIndex> tokens);

/// Indices of the `count` largest keys, ascending by index; equal keys: the lower index first. NaN counts as smallest.
std::vector<std::uint32_t> top_indices(std::span<const float> keys, std::size_t count);

/// The numbers 0 to n - 1.
std::vector<std::uint32_t> all_indices(std::size_t n);

/// State of a method by (sequence, layer, KV head), created at its first use.
template <class T>
class HeadStates {
 public:
  T& at(SequenceId sequence, LayerId layer, std::size_t head) { return states_[sequence][{layer, head}]; }
  void forget(SequenceId sequence) { states_.erase(sequence); }

 private:
  std::map<SequenceId, std::map<std::pair<LayerId, std::size_t>, T>> states_;
};

}  // namespace csdsim::host
