// Feeds known tokens through the decode path. Several methods can start from one dense prefill.
#pragma once

#include <span>
#include <vector>

#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/generation.h"

namespace csdsim::host {

/// What a model predicted at the position of a known token.
struct Prediction {
  double nll = 0;  ///< negative log likelihood of the known token, natural logarithm
  TokenId greedy;  ///< the most likely token; of equals the lowest id
};

/// K, V and queries of densely prefilled prompts, kept so that a prefill is computed once.
class Prefilled {
 public:
  /// Prefills all prompts as one batch; they become sequences 0, 1, ... UserError as Decoder::embed().
  Prefilled(const Decoder& decoder, std::span<const std::span<const TokenId>> prompts);

  /// Creates the sequences in `attention` and hands it their K and V, and the queries if it learns from them.
  void load(AttentionProvider& attention) const;

  std::span<const SequenceSlice> slices() const { return slices_; }

 private:
  class Recorder;
  struct Layer {
    std::vector<Half> k, v;
    std::vector<float> q;
  };
  std::vector<SequenceSlice> slices_;
  std::vector<Layer> layers_;
};

/// Loads the prompts, feeds continuation i of sequence i token by token, all sequences as one batch, and frees them.
/// Continuations are equally long, n >= 2 tokens. Result: [sequence][n - 1], the predictions of tokens 1 to n - 1; the
/// last token is not fed. `neurons` chooses the neurons of each step.
std::vector<std::vector<Prediction>> force(const Decoder& decoder, AttentionProvider& attention,
                                           const Prefilled& prompts,
                                           std::span<const std::span<const TokenId>> continuations,
                                           const NeuronChoice& neurons = {});

/// The prediction of `token` by `logits`.
Prediction prediction(std::span<const float> logits, TokenId token);

}  // namespace csdsim::host
