// The shape of a decoder-only model: what every part of the host runtime needs to know about a checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <variant>

#include "base/address.h"
#include "base/ratio.h"
#include "base/units.h"

namespace csdsim::host {

/// Index into the vocabulary of a model (not a position: that is TokenIndex).
using TokenId = StrongId<struct TokenIdTag>;

/// The model families that have a decoder.
enum class Architecture : std::uint8_t { opt, llama, qwen2, mistral, qwen3 };
/// Name of a family, as in `model_type` of config.json.
inline constexpr std::array<std::string_view, 5> kArchitectureNames{"opt", "llama", "qwen2", "mistral", "qwen3"};
constexpr std::string_view name_of(Architecture a) { return kArchitectureNames[static_cast<std::size_t>(a)]; }

/// Slower rotation of the low frequencies, for contexts beyond the trained one (Llama 3.1, `rope_type: llama3`).
struct Llama3RopeScaling {
  float factor = 1;
  float low_frequency_factor = 1;
  float high_frequency_factor = 4;
  std::uint32_t original_positions = 8192;
};

/// All frequencies divided by one factor: positions are interpolated (arXiv 2306.15595, `rope_type: linear`).
struct LinearRopeScaling {
  float factor = 1;
};

/// Beyond the positions of the training, the base grows with the length of the sequence ("NTK-aware", arXiv 2309.00071,
/// `rope_type: dynamic`).
struct DynamicRopeScaling {
  float factor = 1;
  std::uint32_t original_positions = 2048;
};

/// Low frequencies are divided, high ones stay, and Q and K get longer (arXiv 2309.00071, `rope_type: yarn`).
struct YarnRopeScaling {
  float factor = 1;
  float beta_fast = 32;  ///< pairs that turn more often in the original context stay as they are
  float beta_slow = 1;   ///< pairs that turn less often are divided by the factor
  float magnitude = 1;   ///< factor of Q and of K
  std::uint32_t original_positions = 4096;
  bool truncate = true;  ///< whole pairs begin and end the part between
};

/// Rotary position embedding (arXiv 2104.09864), element i rotated with element i + head_dim / 2.
struct RotaryPositions {
  float theta = 10000;
  std::variant<std::monostate, Llama3RopeScaling, LinearRopeScaling, YarnRopeScaling, DynamicRopeScaling> scaling;

  /// Factor of the rotated Q and of the rotated K.
  constexpr float magnitude() const {
    const auto* const yarn = std::get_if<YarnRopeScaling>(&scaling);
    return yarn != nullptr ? yarn->magnitude : 1;
  }
  /// True if the frequencies of a sequence of `context` tokens are other ones than those of a short sequence.
  constexpr bool changes_at(std::uint32_t context) const {
    const auto* const dynamic = std::get_if<DynamicRopeScaling>(&scaling);
    return dynamic != nullptr && context > dynamic->original_positions;
  }
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
  bool attention_biases = false;                 ///< llama: Q, K, V and the output projection have biases
  bool ffn_biases = false;                       ///< llama: the feed-forward block has biases
  /// Tokens that a token attends to in the checkpoint's layers. Attention here is over all tokens, which is the same up
  /// to this context.
  std::optional<std::uint32_t> sliding_window;
  /// Gated feed-forward networks: FATReLU (ProSparse, arXiv 2402.13516) in place of SiLU, which sets silu(gate) to zero
  /// where it is below this threshold. Not in config.json: a choice of the user.
  std::optional<Ratio> fatrelu;

  /// True if the feed-forward network has neurons that do not fire.
  constexpr bool sparse_ffn() const { return architecture == Architecture::opt || fatrelu.has_value(); }
  /// Longest context that the model can compute: all positions, or those inside one sliding window.
  constexpr std::uint32_t longest_context() const {
    return sliding_window && *sliding_window < max_positions ? *sliding_window : max_positions;
  }
  /// True if Q, K and V have biases; those of opt are not asked here.
  constexpr bool qkv_biases() const { return architecture == Architecture::qwen2 || attention_biases; }
  /// True if every head of Q and of K is normalised before it is rotated.
  constexpr bool head_norms() const { return architecture == Architecture::qwen3; }
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
