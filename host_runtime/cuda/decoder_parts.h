// Parts of a decoder on the GPU beside its KV cache: weights, and the operators of a layer around attention.
// Projections that read the same input are one matrix, and epilogues are fused.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "host_runtime/core/decoder/weight_loader.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"
#include "host_runtime/cuda/cuda_backend.h"
#include "host_runtime/cuda/operators.h"

namespace csdsim::host::cuda {

struct Norm {
  DeviceBuffer<float> gamma, beta;  ///< beta is empty in RMSNorm
};

/// A matrix in device memory that belongs to somebody else.
template <class T>
struct Matrix {
  const T* weight = nullptr;
  const T* bias = nullptr;  ///< null where there is none
  std::uint32_t rows = 0, cols = 0;

  std::size_t elements() const { return std::size_t{rows} * cols; }
  /// The rows from `first` on, which are a matrix of their own.
  Matrix from(std::uint32_t first) const {
    return {weight + std::size_t{first} * cols, bias == nullptr ? nullptr : bias + first, rows - first, cols};
  }
};

/// RMSNorms of the heads of Q and of K; empty where there are none.
struct HeadNorms {
  DeviceBuffer<float> q, k;
};

/// One layer. Its matrices lie one after another in one block, so that it can be copied as a whole.
template <class T>
struct LayerWeights {
  Norm attention_norm, ffn_norm;
  HeadNorms head_norms;
  DeviceBuffer<T> biases;
  DeviceBuffer<T> block;         ///< the matrices; empty where they are somewhere else
  Matrix<T> qkv, out, up, down;  ///< `up` is gate and up, one above the other, where the model has a gate

  std::size_t elements() const { return qkv.elements() + out.elements() + up.elements() + down.elements(); }
  /// Elements of the block: each matrix begins at a multiple of 256 bytes, which cuBLASLt takes for granted.
  std::size_t block_elements() const;
  /// Lets the matrices point to a copy of the block.
  void move_to(const T* copy);
};

/// Activations of a batch of rows, beside the hidden states.
template <class T>
struct Activations {
  Activations(DevicePool& pool, const ModelConfig& config, std::size_t rows);

  DeviceBuffer<T> normed, qkv, attended, up, inner;
};

/// T is __half or __nv_bfloat16: of weights and activations. Sums and logits are fp32.
template <class T>
class DecoderParts {
 public:
  /// Loads what does not belong to a layer. `weights` must outlive this object. UserError as make_decoder(), and if the
  /// heads have more than 256 elements.
  DecoderParts(Context& context, const ModelConfig& config, const WeightSource& weights);

  /// Why there are no parts for such a model; empty if there are.
  static std::string unsupported(const ModelConfig& config);

  LayerWeights<T> load_layer(std::uint32_t layer) const;
  /// Call after all layers were loaded. UserError as check_all_loaded(): a tensor that nobody has read.
  void check_all_loaded() const { host::check_all_loaded(weights_, loaded_); }

  Context& context() const { return context_; }
  const ModelConfig& config() const { return config_; }
  bool gated() const { return config_.architecture != Architecture::opt; }
  /// Elements of a row of q, k and v.
  std::size_t qkv_width() const { return config_.q_width() + std::size_t{2} * config_.kv_width(); }
  /// Rotary positions; without frequencies where positions are learned.
  Rotation rotation() const { return {gated() ? frequency_.data() : nullptr, config_.rotary.magnitude()}; }
  /// Lets rotation() be that of a step whose longest sequence has `context` tokens (dynamic rotary positions).
  void set_context(std::uint32_t context) const;
  /// Bytes of the output projection.
  std::size_t head_bytes() const { return head_.elements() * sizeof(T); }

  void embed(const std::uint32_t* tokens, const std::uint32_t* positions, std::size_t rows, T* x) const;
  void normalise(const T* x, const Norm& norm, std::size_t rows, T* out) const;
  /// out = x m^T, with its bias; ReLU where asked; + residual, which is `out` itself, where given.
  template <class Out>
  void linear(const T* x, const Matrix<T>& m, std::size_t rows, bool relu, const Out* residual, Out* out) const;
  /// q, k and v of normed rows, [rows][q | k | v], their heads normalised where the model says so. Not rotated.
  void project(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* out) const;
  /// K and V alone, [rows][k | v].
  void project_kv(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* out) const;
  /// project(), rotated to the positions.
  void prompt_projections(const LayerWeights<T>& layer, const T* normed, const std::uint32_t* positions,
                          std::size_t rows, T* out) const;
  /// Attention of prompts over a.qkv, to a.attended: `starts` are the first rows of `sequences` sequences, on the
  /// device, and the number of rows.
  void prompt_attention(Activations<T>& a, const std::uint32_t* starts, std::size_t sequences, std::uint32_t longest,
                        std::size_t rows) const;
  /// Attention of one token per sequence over caches, to a.attended.
  void step_attention(Activations<T>& a, std::size_t sequences, const std::uint32_t* lengths, const CacheShape& shape,
                      const T* keys, const T* values) const;
  /// The output projection of a.attended, and the residual x.
  void finish_attention(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const;
  /// What the neurons yield for normed rows, [rows][ffn]. `both` is room for gate and up, [rows][2 ffn], where
  /// needs_both(rows).
  void activate(const LayerWeights<T>& layer, const T* normed, std::size_t rows, T* both, T* inner) const;
  /// True if a kernel of its own multiplies gate and up: the product of few rows does it.
  bool needs_both(std::size_t rows) const { return gated() && rows > kGemvRows; }
  /// The feed-forward network of a.normed, and the residual x.
  void feed_forward(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const;
  /// Everything of a layer after attention; x are the hidden states.
  void finish_layer(const LayerWeights<T>& layer, Activations<T>& a, T* x, std::size_t rows) const;
  /// Logits [rows][vocab] of the hidden states after the last layer.
  void logits(const T* x, std::size_t rows, T* normed, float* out) const;

 private:
  class Loader;

  void norm_heads(const HeadNorms& norms, T* rows, std::size_t stride, std::size_t count, std::uint32_t q_heads) const;

  Context& context_;
  ModelConfig config_;
  const WeightSource& weights_;
  DeviceBuffer<T> token_table_, position_table_, own_head_;
  Matrix<T> head_;
  DeviceBuffer<float> frequency_;
  mutable std::uint32_t rotated_context_ = 0;  ///< whose frequencies are on the device; 0: a short one
  Norm final_norm_;
  mutable std::set<std::string> loaded_;  ///< names of tensors
};

}  // namespace csdsim::host::cuda
