// A whole decoder on the GPU with dense attention and its KV cache there: the fast path, where only logits leave the
// GPU. Projections that read the same input are one matrix, epilogues are fused, and a decode step is one graph.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "host_runtime/core/generation.h"
#include "host_runtime/core/model_config.h"
#include "host_runtime/core/weight_source.h"
#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

/// T is __half or __nv_bfloat16: of weights, activations and cache. Sums and logits are fp32.
template <class T>
class DenseModel {
 public:
  /// Room for `slots` sequences of `capacity` tokens. UserError as make_decoder(), and if the heads have more than 256
  /// elements; CudaError if the GPU's memory does not suffice.
  DenseModel(Context& context, const ModelConfig& config, const WeightSource& weights, std::uint32_t slots,
             std::uint32_t capacity);
  ~DenseModel();

  /// Computes a prompt from its start, filling the cache of `slot`. Returns the logits of its last token, [vocab].
  std::vector<float> prefill(std::uint32_t slot, std::span<const TokenId> tokens);
  /// One step of all slots: token i at position i of slot i. Returns the logits, [slots][vocab], valid until the next
  /// call.
  std::span<const float> decode(std::span<const TokenId> tokens, std::span<const TokenIndex> positions);

  /// As host::generate(); at most `slots` prompts, each with its new tokens within the capacity.
  std::vector<std::vector<TokenId>> generate(const std::vector<std::vector<TokenId>>& prompts,
                                             const GenerationOptions& options);

  /// Bytes of parameters that one decode step reads.
  std::size_t bytes_read_a_step() const { return parameter_bytes_; }

 private:
  struct Norm {
    DeviceBuffer<float> gamma, beta;  // beta is empty in RMSNorm
  };
  struct Matrix {
    DeviceBuffer<T> weight;
    DeviceBuffer<float> bias;  // empty where there is none
    std::uint32_t rows = 0, cols = 0;
  };
  struct Layer {
    Norm attention_norm, ffn_norm;
    Matrix qkv, out, up, down;  // `up` is gate and up, one above the other, where the model has a gate
    DeviceBuffer<T> keys, values;
  };
  struct Activations;
  class Loader;

  bool gated() const { return config_.architecture != Architecture::opt; }
  template <class Out>
  void linear(const T* x, const Matrix& m, std::size_t rows, bool relu, const Out* residual, Out* out);
  void normalise(T* x, const Norm& norm, std::size_t rows, T* out);
  void embed(const std::uint32_t* tokens, const std::uint32_t* positions, std::size_t rows, T* x);
  void feed_forward(const Layer& layer, Activations& a, std::size_t rows);
  void run_step();

  Context& context_;
  ModelConfig config_;
  std::uint32_t slots_, capacity_;
  CacheShape shape_;
  DevicePool scratch_;  // memory of decode steps, whose graph keeps the addresses
  DeviceBuffer<T> token_table_, position_table_;
  Matrix head_;  // has no weight of its own if it is tied to token_table_
  DeviceBuffer<float> frequency_;
  std::vector<Layer> layers_;
  Norm final_norm_;
  std::size_t parameter_bytes_ = 0;
  DeviceBuffer<std::uint32_t> tokens_, positions_, lengths_;
  std::unique_ptr<Activations> step_;
  DeviceBuffer<float> logits_;
  PinnedBuffer<std::uint32_t> step_inputs_;  // tokens, positions, lengths
  PinnedBuffer<float> host_logits_;
  Graph graph_;
};

}  // namespace csdsim::host::cuda
