// The shape of a decoder-only model: what every part of the host runtime needs to know about a checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

#include "base/address.h"
#include "base/ratio.h"
#include "base/units.h"

namespace csdsim::host {

/// Index into the vocabulary of a model (not a position: that is TokenIndex).
using TokenId = StrongId<struct TokenIdTag>;

/// The model families that have a decoder.
enum class Architecture : std::uint8_t { opt, llama, qwen2 };
/// Name of a family, as in `model_type` of config.json.
inline constexpr std::array<std::string_view, 3> kArchitectureNames{"opt", "llama", "qwen2"};
constexpr std::string_view name_of(Architecture a) { return kArchitectureNames[static_cast<std::size_t>(a)]; }

/// Slower rotation of the low frequencies, for contexts beyond the trained one (Llama 3.1, `rope_type: llama3`).
struct Llama3RopeScaling {
  float factor = 1;
  float low_frequency_factor = 1;
  float high_frequency_factor = 4;
  std::uint32_t original_positions = 8192;
};

/// Rotary position embedding (arXiv 2104.09864), element i rotated with element i + head_dim / 2.
struct RotaryPositions {
  float theta = 10000;
  std::optional<Llama3RopeScaling> scaling;
};

/// Shape of a model. Counts are elements, not bytes; all are at least 1.
struct ModelConfig {
  Architecture architecture = Architecture::opt;
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
  bool norm_first = true;           ///< opt: LayerNorm before each block, not after its residual sum (OPT-350m)
  bool final_norm = true;           ///< opt: a norm after the last layer
  std::optional<std::uint32_t> embedding_width;  ///< opt: of tokens, where it is not `width` (OPT-350m: 512 of 1,024)
  RotaryPositions rotary;                        ///< not used by opt, whose positions are learned
  /// Gated feed-forward networks: FATReLU (ProSparse, arXiv 2402.13516) in place of SiLU, which sets silu(gate) to zero
  /// where it is below this threshold. Not in config.json: a choice of the user.
  std::optional<Ratio> fatrelu;

  /// Whether the feed-forward network has neurons that do not fire.
  constexpr bool sparse_ffn() const { return architecture == Architecture::opt || fatrelu.has_value(); }
  /// Query heads that share one KV head (1 without grouped-query attention).
  constexpr std::uint32_t group_size() const { return heads / kv_heads; }
  /// Elements of a token's embedding, and of what the output projection takes.
  constexpr std::uint32_t token_width() const { return embedding_width.value_or(width); }
  /// Elements of q, and of k or v, of one token in one layer.
  constexpr std::uint32_t q_width() const { return heads * head_dim; }
  constexpr std::uint32_t kv_width() const { return kv_heads * head_dim; }
  /// fp16 bytes of K and V of one token over all layers.
  constexpr Bytes kv_bytes_per_token() const { return Bytes{std::uint64_t{4} * layers * kv_width()}; }
};

}  // namespace csdsim::host
