// Models with random weights, in memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/fp16.h"
#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/model/weight_source.h"
#include "tests/gpu/harness.h"

namespace gpu_test {

/// fp16 tensors under the names of Hugging Face checkpoints.
class RandomWeights final : public csdsim::host::WeightSource {
 public:
  RandomWeights(const csdsim::host::ModelConfig& c, std::uint64_t seed) : random_(seed) {
    using csdsim::host::Architecture;
    const bool opt = c.architecture == Architecture::opt, qkv = opt || c.qkv_biases();
    const std::string prefix = opt ? "model.decoder." : "model.";
    matrix(prefix + "embed_tokens.weight", c.vocab, c.width, 1);
    if (opt) matrix(prefix + "embed_positions.weight", c.max_positions + 2, c.width, 1);
    if (!c.tied_embeddings) matrix("lm_head.weight", c.vocab, c.width, 1);
    for (std::uint32_t i = 0; i < c.layers; ++i) {
      const std::string layer = prefix + "layers." + std::to_string(i) + ".", attention = layer + "self_attn.";
      norm(layer + (opt ? "self_attn_layer_norm" : "input_layernorm"), c.width, opt);
      norm(layer + (opt ? "final_layer_norm" : "post_attention_layernorm"), c.width, opt);
      linear(attention + "q_proj", c.q_width(), c.width, qkv);
      linear(attention + "k_proj", c.kv_width(), c.width, qkv);
      linear(attention + "v_proj", c.kv_width(), c.width, qkv);
      linear(attention + (opt ? "out_proj" : "o_proj"), c.width, c.q_width(), opt || c.attention_biases);
      if (c.head_norms()) {
        norm(attention + "q_norm", c.head_dim, false);
        norm(attention + "k_norm", c.head_dim, false);
      }
      if (opt) {
        linear(layer + "fc1", c.ffn, c.width, true);
        linear(layer + "fc2", c.width, c.ffn, true);
      } else {
        linear(layer + "mlp.gate_proj", c.ffn, c.width, c.ffn_biases);
        linear(layer + "mlp.up_proj", c.ffn, c.width, c.ffn_biases);
        linear(layer + "mlp.down_proj", c.width, c.ffn, c.ffn_biases);
      }
    }
    norm(prefix + (opt ? "final_layer_norm" : "norm"), c.width, opt);
  }

  bool contains(std::string_view name) const override { return tensors_.contains(std::string(name)); }
  csdsim::host::StoredTensor tensor(std::string_view name) const override {
    const auto it = tensors_.find(std::string(name));
    if (it == tensors_.end()) throw csdsim::UserError("no tensor " + std::string(name));
    return {csdsim::host::ElementType::f16, it->second.shape,
            std::as_bytes(std::span<const csdsim::Half>(it->second.values))};
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all;
    for (const auto& [name, tensor] : tensors_) all.push_back(name);
    return all;
  }
  std::string description() const override { return "random weights"; }

  /// A tensor more, of random values; or another one's values under a second name.
  void add_matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols) { matrix(name, rows, cols, 1); }
  void add_copy(const std::string& name, const std::string& of) { tensors_[name] = tensors_.at(of); }

 private:
  struct Stored {
    std::vector<std::uint64_t> shape;
    std::vector<csdsim::Half> values;
  };

  void add(const std::string& name, std::vector<std::uint64_t> shape, float scale, float shift) {
    std::size_t count = 1;
    for (const std::uint64_t size : shape) count *= size;
    Stored stored{std::move(shape), std::vector<csdsim::Half>(count)};
    // Uniform: quick to draw, which matters for models of billions of parameters.
    for (csdsim::Half& h : stored.values) {
      h = csdsim::float_to_half(shift + scale * static_cast<float>(3.4 * random_.uniform() - 1.7));
    }
    tensors_.emplace(name, std::move(stored));
  }
  void matrix(const std::string& name, std::uint64_t rows, std::uint64_t cols, float scale) {
    add(name, {rows, cols}, scale / std::sqrt(static_cast<float>(cols)), 0);
  }
  void linear(const std::string& name, std::uint64_t rows, std::uint64_t cols, bool biased) {
    matrix(name + ".weight", rows, cols, 1);
    if (biased) add(name + ".bias", {rows}, 0.1f, 0);
  }
  void norm(const std::string& name, std::uint64_t width, bool biased) {
    add(name + ".weight", {width}, 0.2f, 1);
    if (biased) add(name + ".bias", {width}, 0.2f, 0);
  }

  Random random_;
  std::map<std::string, Stored> tensors_;
};

}  // namespace gpu_test
