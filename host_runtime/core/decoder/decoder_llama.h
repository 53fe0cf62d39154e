// Llama (arXiv 2302.13971, 2307.09288, 2407.21783), Mistral (arXiv 2310.06825), Qwen2 (arXiv 2407.10671) and Qwen3
// (arXiv 2505.09388): rotary positions, RMSNorm before each block, SwiGLU, grouped queries. Qwen2 has biases of Q, K
// and V, Qwen3 norms of the heads of Q and K; some checkpoints of Llama have biases everywhere.
#pragma once

#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/weight_loader.h"

namespace csdsim::host {

/// Tensor names are those of Hugging Face LlamaForCausalLM, with or without the leading "model.".
class LlamaDecoder final : public Decoder {
 public:
  /// See make_decoder().
  LlamaDecoder(const ModelConfig& config, const WeightSource& weights, Backend& backend, KvPrecision kv);

  AttentionInputs attention_inputs(LayerId layer, const HiddenStates& hidden) const override;
  KeysValues keys_values(LayerId layer, const HiddenStates& hidden) const override;
  void finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const override;
  Tensor feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const override;
  Tensor neuron_activations(LayerId layer, const Tensor& inputs,
                            const FeedForwardWeights* weights = nullptr) const override;
  void add_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& output) const override;
  using Decoder::logits;
  std::vector<float> logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const override;

 private:
  struct Layer {
    Weight attention_norm;
    Affine q, k, v, out;  // without biases where the model has none
    Weight q_norm, k_norm;
    Weight ffn_norm;
    Affine gate, up, down;
  };

  Tensor project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const override;
  HiddenStates do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const override;
  Tensor linear(const Tensor& x, const Weight& weight, const Weight* bias = nullptr) const;
  Tensor project(const Tensor& x, const Affine& projection, const Weight* own = nullptr) const;
  /// Normalises every head of x.
  void norm_heads(Tensor& x, const Weight& gamma) const;
  Tensor norm(const Tensor& x, const Weight& gamma) const;
  void rotate(Tensor& x, const HiddenStates& hidden) const;
  /// Frequencies of rotary positions, for a longest sequence of `context` tokens.
  Weight frequencies_at(std::uint32_t context) const;
  /// From the normed hidden states.
  KeysValues project_kv(const Layer& weights, const Tensor& normed, const HiddenStates& hidden) const;

  Weight token_table_;
  Weight output_table_;         // empty when tied to token_table_
  Weight inverse_frequencies_;  ///< inverse frequencies of short sequences
  std::vector<Layer> layers_;
  Weight final_norm_;
};

}  // namespace csdsim::host
