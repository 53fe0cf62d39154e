// A decoder on the GPU whose attention is somewhere else, in a drive or by a method: layer by layer, with the fused
// projections and epilogues of DecoderParts.
#pragma once

#include <memory>
#include <vector>

#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/cuda/decoder_parts.h"

namespace csdsim::host::cuda {

/// Q, K and V are one product, gate and up another; biases, ReLU, SwiGLU of few rows and the residuals are part of the
/// product before them.
template <class T>
class FusedDecoder final : public Decoder {
 public:
  /// `backend` must outlive it. UserError as make_decoder(), and as DecoderParts.
  FusedDecoder(CudaBackend<T>& backend, Context& context, const ModelConfig& config, const WeightSource& weights);

  AttentionInputs attention_inputs(LayerId layer, const HiddenStates& hidden) const override;
  KeysValues keys_values(LayerId layer, const HiddenStates& hidden) const override;
  void finish_attention(LayerId layer, HiddenStates& hidden, const Tensor& attention_output) const override;
  Tensor feed_forward_inputs(LayerId layer, const HiddenStates& hidden) const override;
  Tensor neuron_activations(LayerId layer, const Tensor& inputs, const FeedForwardWeights* weights) const override;
  void add_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& output) const override;
  using Decoder::logits;
  std::vector<float> logits(const HiddenStates& hidden, std::span<const std::uint32_t> rows) const override;

 private:
  HiddenStates do_embed(std::span<const TokenId> tokens, std::span<const TokenIndex> positions) const override;
  Tensor project_down(LayerId layer, const Tensor& inner, const FeedForwardWeights* own) const override;
  void finish_feed_forward(LayerId layer, HiddenStates& hidden, const Tensor& inner,
                           const FeedForwardWeights* own) const override;
  const std::uint32_t* on_device(std::span<const TokenIndex> positions) const;
  Tensor product(const Tensor& x, Matrix<T> matrix, const Weight* own, bool relu) const;
  /// Puts work into the stream and counts its time.
  template <class Work>
  void compute(Work&& work) const {
    context_.copies.compute(work);
  }

  Context& context_;
  DecoderParts<T> parts_;
  std::vector<LayerWeights<T>> layers_;
  // The positions of the latest batch: all layers of a step have the same.
  mutable std::vector<std::uint32_t> positions_;
  mutable DeviceBuffer<std::uint32_t> device_positions_;
};

/// The fused decoder, or the one of make_decoder() for a model that DecoderParts does not have.
template <class T>
std::unique_ptr<Decoder> make_gpu_decoder(CudaBackend<T>& backend, Context& context, const ModelConfig& config,
                                          const WeightSource& weights);

}  // namespace csdsim::host::cuda
