// Times of the operators of a model on the present GPU.
#pragma once

#include <memory>

#include "host_runtime/core/plan/layer_work.h"
#include "host_runtime/cuda/decoder_parts.h"
#include "host_runtime/cuda/timing.h"

namespace csdsim::host::cuda {

/// Runs them on one layer with made-up weights, in fp16: the kernels of a decoder, with norms, biases, rotation and
/// activations. Prompts are computed as prompts.
class LayerTimer {
 public:
  /// UserError as DecoderParts.
  LayerTimer(Context& context, const ModelConfig& config);
  ~LayerTimer();

  MeasuredSeconds seconds(const LayerWork& work);

 private:
  class Weights;

  MeasuredSeconds attention(const LayerWork& work);
  /// The equal lengths of the sequences of attention; the first ones have a token more where they do not divide.
  static std::vector<std::uint32_t> lengths_of(const LayerWork& work);

  Context& context_;
  std::unique_ptr<Weights> weights_;
  DecoderParts<__half> parts_;
  LayerWeights<__half> layer_;
};

}  // namespace csdsim::host::cuda
