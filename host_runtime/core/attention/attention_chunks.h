// Attention to the tokens of the chunks whose keys may matter, found by bounds of their products with the query.
#pragma once

#include "host_runtime/core/attention/attention_choice.h"

namespace csdsim::host {

struct ChunkOptions {
  TokenBudget tokens = 128;  ///< tokens attended to, the current one included; at least 1
  std::uint32_t chunk = 64;  ///< tokens of the chunks that a step starts from; a power of two
  std::uint32_t leaf = 8;    ///< smallest chunk that is still bounded; a power of two, at most `chunk`
};

/// Chunk bounds in the manner of LeoAM (arXiv 2506.20187; docs/algorithms.md, Chunk bounds). The abstract of a chunk is
/// the smallest and largest value of every key component. For a query, U = sum_i max(q_i min_i, q_i max_i) bounds q.k
/// of its tokens from above and B, with min, from below; both are summed over the KV group. A chunk is dropped when U
/// is below the k-th largest lower bound of a token, kept when B is above the (k+1)-th largest upper bound, and split
/// in two otherwise. Chunks of leaf size that are still undecided rank by U. Tokens of the best chunks are taken,
/// largest U first, of equals the older, until k are there; of the last chunk the newest ones. The current token is
/// always among them.
///
/// LeoAM adapts chunk sizes by how skewed attention is; splitting where the bounds do not decide does so too, but the
/// paper's own rule is not known here. With chunk = leaf it is a method of fixed chunks (Quest, arXiv 2406.10774).
class ChunkAttention final : public ChoosingMethod {
 public:
  /// UserError if the budget is 0 or the sizes are not powers of two with leaf <= chunk.
  explicit ChunkAttention(const ChunkOptions& options);
  std::string_view name() const override { return "leoam"; }
  /// The keys of a prompt; those of a sequence whose prompt was not seen join with its first step.
  void learn(const LayerPrompt& prompt) override;
  std::vector<std::vector<std::uint32_t>> choose(const LayerStep& step) override;
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) override;
  void forget(SequenceId sequence) override { states_.forget(sequence); }

 private:
  /// Abstracts of all chunks of one size: least and largest key, [chunks][2][d].
  struct State {
    std::vector<std::vector<float>> levels;  ///< least and largest keys of blocks of leaf, 2 leaf, ... chunk tokens
    std::size_t tokens = 0;
  };
  void extend(State& state, const KvView& kv) const;
  /// Tokens that a head attends to. `examined` counts the abstracts read.
  std::vector<std::uint32_t> chosen(const LayerStep& step, std::size_t head, std::uint64_t& examined);
  std::vector<std::uint32_t> choose(const State& state, std::span<const float> q, const KvView& kv,
                                    std::uint64_t& examined) const;

  ChunkOptions options_;
  HeadStates<State> states_;
};

/// Largest (upper) and smallest (lower) possible sum over the group of q_g . k for keys within [least, largest], each
/// [d]; q is [group][d].
struct ChunkBounds {
  float lower = 0;
  float upper = 0;
};
ChunkBounds chunk_bounds(std::span<const float> q, const float* least, const float* largest, std::size_t d);

}  // namespace csdsim::host
