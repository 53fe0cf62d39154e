// The shape of a decoder-only model: what every part of the host runtime needs to know about a checkpoint.
#pragma once

#include <cstdint>
#include <string>

#include "base/address.h"
#include "base/units.h"

namespace csdsim::host {

/// Index into the vocabulary of a model (not a position: that is TokenIndex).
using TokenId = StrongId<struct TokenIdTag>;

/// Shape of a model. Counts are elements, not bytes; all are at least 1.
struct ModelConfig {
  std::string architecture;         ///< family as its config.json names it ("opt")
  std::uint32_t layers = 0;         ///< decoder layers
  std::uint32_t width = 0;          ///< hidden size
  std::uint32_t heads = 0;          ///< query heads
  std::uint32_t kv_heads = 0;       ///< key/value heads; divides `heads`
  std::uint32_t head_dim = 0;       ///< elements of a head
  std::uint32_t ffn = 0;            ///< inner width of the feed-forward block
  std::uint32_t vocab = 0;          ///< vocabulary size
  std::uint32_t max_positions = 0;  ///< longest context
  float norm_epsilon = 1e-5f;       ///< epsilon of the normalisation layers
  bool tied_embeddings = true;      ///< the output projection is the embedding table

  /// Query heads that share one KV head (1 without grouped-query attention).
  constexpr std::uint32_t group_size() const { return heads / kv_heads; }
  /// Elements of q, and of k or v, of one token in one layer.
  constexpr std::uint32_t q_width() const { return heads * head_dim; }
  constexpr std::uint32_t kv_width() const { return kv_heads * head_dim; }
  /// fp16 bytes of K and V of one token over all layers.
  constexpr Bytes kv_bytes_per_token() const { return Bytes{std::uint64_t{4} * layers * kv_width()}; }
};

}  // namespace csdsim::host
