// A whole decoder on the GPU with dense attention and its KV cache there: the fast path, where only logits leave the
// GPU. A decode step is one graph.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/decoder/generation.h"
#include "host_runtime/cuda/decoder_parts.h"

namespace csdsim::host::cuda {

/// T is __half or __nv_bfloat16: of weights, activations and cache. Sums and logits are fp32.
template <class T>
class DenseModel {
 public:
  /// Room for `slots` sequences of `capacity` tokens. UserError as make_decoder(), and if the heads have more than 256
  /// elements; CudaError if the GPU's memory does not suffice.
  DenseModel(Context& context, const ModelConfig& config, const WeightSource& weights, std::uint32_t slots,
             std::uint32_t capacity);

  /// Computes a prompt from its start, filling the cache of `slot`. Returns the logits of its last token, [vocab].
  /// `context` is the length of the longest prompt of the batch, where that is another one.
  std::vector<float> prefill(std::uint32_t slot, std::span<const TokenId> tokens, std::uint32_t context = 0);
  /// One step of all slots: token i at position i of slot i. Returns the logits, [slots][vocab], valid until the next
  /// call.
  std::span<const float> decode(std::span<const TokenId> tokens, std::span<const TokenIndex> positions);

  /// As host::generate(); at most `slots` prompts, each with its new tokens within the capacity.
  std::vector<std::vector<TokenId>> generate(const std::vector<std::vector<TokenId>>& prompts,
                                             const GenerationOptions& options);

  /// Bytes of parameters that one decode step reads.
  std::size_t bytes_read_a_step() const { return parameter_bytes_; }

 private:
  struct Layer {
    LayerWeights<T> weights;
    DeviceBuffer<T> keys, values;
  };

  void run_step();

  Context& context_;
  DecoderParts<T> parts_;
  std::uint32_t slots_, capacity_;
  CacheShape shape_;
  std::vector<Layer> layers_;
  std::size_t parameter_bytes_ = 0;
  DeviceBuffer<std::uint32_t> tokens_, positions_, lengths_;
  Activations<T> step_;
  DeviceBuffer<T> hidden_;  // hidden states of a step
  DeviceBuffer<float> logits_;
  PinnedBuffer<std::uint32_t> step_inputs_;  // tokens, positions, lengths
  PinnedBuffer<float> host_logits_;
  Graph graph_;
};

}  // namespace csdsim::host::cuda
