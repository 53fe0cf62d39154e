// InfiniGen: the tokens of a layer are chosen one layer ahead, from a few columns of skewed queries and keys.
#pragma once

#include "host_runtime/core/attention/attention_choice.h"

namespace csdsim::host {

struct InfinigenOptions {
  csdsim::Ratio partial = csdsim::Ratio::of(1, 5);  ///< share of the columns that speculate, rounded down, at least 1
  /// A token whose speculated logit is more than this below the largest is not fetched: 4 in the speed code for OPT, 5
  /// in the accuracy code for Llama.
  float threshold = 4.0f;
  TokenBudget tokens = csdsim::Ratio::of(1, 5);  ///< at most so many are attended to, the current one included
  std::uint32_t dense_layers = 2;                ///< first layers that fetch everything
};

/// InfiniGen (arXiv 2406.19707; docs/algorithms.md, InfiniGen). Of the prompt each KV head learns an orthogonal A that
/// concentrates its queries in few columns (right singular vectors of the queries), the columns C with the largest sum
/// of |q A|, and keeps k A of these. While the layer before is computed, a query speculated from that layer's input
/// scores all earlier tokens by C, summed over the KV group; n' is the mean over the heads of how many come within the
/// threshold of the head's largest, and every head fetches its n' best. The current token is always attended to.
///
/// Differs from the published code: A and C belong to a sequence and come from its own prompt (there: offline from a
/// sample, and from the first sequence of a batch); n' is a mean over the heads of one sequence, so that it does not
/// depend on the rest of a batch; the speculated query is normalised by the layer it is for (there: by the one before);
/// nothing bounds the pool of keys in host memory. A sequence whose prompt was not seen is attended densely.
class InfinigenAttention final : public ChoosingMethod {
 public:
  /// UserError if a share is outside (0, 1], the threshold is not above 0, or the budget is 0.
  explicit InfinigenAttention(const InfinigenOptions& options);
  std::string_view name() const override { return "infinigen"; }
  bool learns_from_prompt() const override { return true; }
  void learn(const LayerPrompt& prompt) override;
  bool speculates() const override { return true; }
  void speculate(SequenceId sequence, LayerId layer, std::span<const float> q) override;
  std::vector<std::vector<std::uint32_t>> choose(const LayerStep& step) override;
  void attend_layer(const LayerStep& step, std::span<float> out, std::span<HeadSelection> selections) override;
  void forget(SequenceId sequence) override;

 private:
  struct State {
    std::size_t columns = 0;
    std::vector<float> skew;  ///< [columns][d]: the columns C of A
    std::vector<float> keys;  ///< [tokens][columns]: k A of C
    std::size_t tokens() const { return columns == 0 ? 0 : keys.size() / columns; }
  };
  /// True if the layer attends to everything.
  bool dense(SequenceId sequence, LayerId layer);
  static void extend(State& state, const KvView& kv);

  InfinigenOptions options_;
  HeadStates<State> states_;
  HeadStates<std::vector<float>> speculated_;  ///< by layer, head 0: q of all heads
};

/// d': columns that speculate.
std::size_t infinigen_columns(const InfinigenOptions& options, std::size_t head_dim);

/// The `columns` columns of A that a KV head learns from the queries of a prompt, [columns][d]. q points at the head's
/// first query of the first token; tokens are `stride` apart, the `group` queries of one d.
std::vector<float> infinigen_skew(const float* q, std::size_t stride, std::size_t tokens, std::size_t group,
                                  std::size_t d, std::size_t columns);

/// Orthonormal eigenvectors of a symmetric matrix [n][n], as rows [n][n], by cyclic Jacobi rotations. In no order.
std::vector<double> symmetric_eigenvectors(std::vector<double> matrix, std::size_t n);

}  // namespace csdsim::host
