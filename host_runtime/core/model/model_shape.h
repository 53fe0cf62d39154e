// Costs of a decoder-only model: parameters, KV bytes, and the work of each operator for a ragged batch.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host_runtime/core/model/model_config.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// The linear layers that have biases.
enum class Biases : std::uint8_t { none, qkv, all };

/// Sizes of a decoder. `width` is the model dimension D; `heads` is a multiple of `kv_heads`.
struct ModelShape {
  std::uint32_t layers = 0;
  std::uint32_t width = 0;
  std::uint32_t heads = 0;
  std::uint32_t kv_heads = 0;
  std::uint32_t head_dim = 0;
  std::uint32_t ffn = 0;
  std::uint32_t vocab = 0;
  std::uint32_t positions = 0;      ///< rows of a learned position table; 0 with rotary positions
  std::uint32_t ffn_matrices = 2;   ///< 3 for gated feed-forward networks
  Biases biases = Biases::all;      ///< all: norms have a shift besides their gain
  bool tied_embeddings = true;      ///< the language-model head shares the token table
  std::uint32_t element_bytes = 2;  ///< bytes per element of weights, activations and the KV cache

  /// The shape of a decoder of host_runtime in fp16.
  static ModelShape of(const ModelConfig& config);

  /// Throws UserError that names the field if a size is zero or the heads do not divide.
  void validate() const;

  std::uint64_t parameters() const;
  /// Parameters of one decoder layer.
  std::uint64_t layer_parameters() const;
  Bytes layer_weight_bytes() const { return {layer_parameters() * element_bytes}; }
  Bytes weight_bytes() const { return {parameters() * element_bytes}; }
  /// K and V of one token in all layers; 819,200 B for OPT-13B.
  Bytes kv_bytes_per_token() const { return kv_bytes_per_token_and_layer() * layers; }
  Bytes kv_bytes_per_token_and_layer() const { return kv_bytes_per_token_and_head() * kv_heads; }
  Bytes kv_bytes_per_token_and_head() const { return {2ULL * head_dim * element_bytes}; }
  /// q (or the attention output) of one token for the query heads of `heads` KV heads, in one layer.
  Bytes query_bytes(HeadRange heads_held) const {
    return {std::uint64_t{heads_held.count} * (heads / kv_heads) * head_dim * element_bytes};
  }

  /// o, m and z of one token for the same query heads.
  Bytes partial_bytes(HeadRange heads_held) const {
    return query_bytes(heads_held) + Bytes{std::uint64_t{heads_held.count} * (heads / kv_heads) * 2 * sizeof(float)};
  }

  /// Lookup of token and position rows; `tokens` over the whole batch.
  ComputeWork embed(std::uint64_t tokens) const;
  /// Norm, the Q, K, V projections and the rotation of Q and K of one layer. Here and below, flops count only matrix
  /// products.
  ComputeWork attention_inputs(std::uint64_t tokens) const;
  /// Norm, the K and V projections and the rotation of K of one layer, from its inputs (KVPR: 4 x tokens x width x KV
  /// width flops).
  ComputeWork recompute_kv(std::uint64_t tokens) const;
  /// Causal dense attention of one layer over whole prompts: 4 d H S (S+1) / 2 flops for a prompt of S tokens; Q, K, V
  /// and the output are read or written once (fused kernel).
  ComputeWork prefill_attention(std::span<const std::uint32_t> lengths) const;
  /// Dense attention of one layer in a decode step: `queries` per head for each of `sequences`, over `contexts` tokens
  /// of all sequences together; 4 d H flops per token and query, K and V read once.
  ComputeWork decode_attention(std::uint64_t sequences, std::uint64_t contexts, std::uint64_t queries = 1) const;
  /// Partial outputs of `parts` places become one output per token, for all heads.
  ComputeWork merge_attention(std::uint64_t tokens, std::uint32_t parts) const;
  /// Output projection, residual, norm, feed-forward network, residual of one layer.
  ComputeWork finish_layer(std::uint64_t tokens) const;
  /// The part of finish_layer() before the feed-forward network: output projection, residual, norm.
  ComputeWork finish_attention(std::uint64_t tokens) const;
  /// Feed-forward network of one layer over `neurons` of the `ffn` ones, and the residual. With all neurons it is the
  /// rest of finish_layer().
  ComputeWork feed_forward(std::uint64_t tokens, std::uint64_t neurons) const;
  /// A predictor of active neurons for one layer: two matrix products through `rank` dimensions, and a comparison.
  ComputeWork predict_neurons(std::uint64_t tokens, std::uint64_t rank) const;
  /// Sums in fp32 of `parts` places, the output bias and the residual of one layer are added.
  ComputeWork merge_feed_forward(std::uint64_t tokens, std::uint32_t parts) const;
  /// Bytes of the outputs in fp32 of a feed-forward network.
  Bytes partial_sum_bytes(std::uint64_t tokens) const { return {tokens * width * sizeof(float)}; }
  /// Parameters of one layer's feed-forward matrices, without biases.
  std::uint64_t ffn_parameters() const { return std::uint64_t{ffn_matrices} * width * ffn; }
  /// Final norm, language-model head and sampling of one token for each of `sequences`.
  ComputeWork sample(std::uint64_t sequences) const;
};

}  // namespace csdsim::host
