// OPT (arXiv 2205.01068): learned positions, LayerNorm before each block (OPT-350m: after it), ReLU, biases everywhere.
#pragma once

#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/weight_loader.h"

namespace csdsim::host {

/// Tensor names are those of Hugging Face OPTForCausalLM, with or without the leading "model.".
class OptDecoder final : public Decoder {
 public:
  /// See make_decoder().
  OptDecoder(const ModelConfig& config, const WeightSource& weights, Backend& backend, KvPrecision kv);

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
    Affine attention_norm, q, k, v, out, ffn_norm, fc1, fc2;
  };

  Tensor project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const override;
  HiddenStates do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const override;
  Tensor linear(const Tensor& x, const Affine& affine) const { return linear(x, affine.weight, affine.bias); }
  Tensor linear(const Tensor& x, const Weight& weight, const Weight& bias) const;
  Tensor project(const Tensor& x, const Weight& weight) const;
  Tensor norm(const Tensor& x, const Affine& affine) const;
  /// From what enters the projections.
  KeysValues project_kv(const Layer& weights, const Tensor& x) const;

  Weight token_table_;
  Weight position_table_;
  Weight output_table_;              // empty when tied to token_table_
  Weight project_in_, project_out_;  // empty where embeddings have the width of the model
  std::vector<Layer> layers_;
  Affine final_norm_;  // empty where there is none
};

}  // namespace csdsim::host
