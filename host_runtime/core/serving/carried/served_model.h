// A model that is served: what the GPUs hold, and the tokens that it draws.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <vector>

#include "base/fp16.h"
#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/serving/carried/trace_tokens.h"
#include "host_runtime/core/serving/engine/kv_contents.h"

namespace csdsim::host {

/// A token that a model has drawn, the most likely one, and its logit.
struct DrawnToken {
  TokenId token;
  float logit = 0;
  bool operator==(const DrawnToken&) const = default;
};

/// The tokens of each request's answer, in the order of the trace.
using DrawnAnswers = std::vector<std::vector<DrawnToken>>;

/// Dense attention on the host. Each token is computed by itself, so that K and V depend on the tokens before it and on
/// nothing else: not on the step, the chunk, or what else is computed there.
class ServedModel final : public KvContents {
 public:
  struct Layout {
    std::uint32_t block_tokens = 16;  ///< tokens per block of the GPU
    std::uint32_t parts = 1;          ///< parts of a block of the tiers: 1, or one for each layer
  };

  /// `decoder` and `trace` must outlive this. UserError if a request has more tokens than the model has positions.
  ServedModel(const Decoder& decoder, const ServingTrace& trace, const Layout& layout);

  const DrawnAnswers& answers() const { return answers_; }

  void take(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
            std::span<std::byte> bytes) const override;
  void put(std::uint32_t gpu, std::span<const KvBlockSlot> slots, std::uint32_t part,
           std::span<const std::byte> bytes) override;
  void swap_out(const ServedSequence& sequence, std::span<const KvBlockSlot> slots) override;
  void swap_in(const ServedSequence& sequence) override;
  void compute(const ServedSequence& sequence, std::uint64_t tokens) override;

  /// The answers where each request is computed alone, from its first token on.
  DrawnAnswers compute_cold() const;

 private:
  /// K and V of a block of the GPU: [layer][K, V][token][kv_heads * head_dim].
  using Block = std::vector<Half>;
  std::size_t layer_size() const { return std::size_t{2} * layout_.block_tokens * decoder_.config().kv_width(); }
  Block& block(std::uint32_t gpu, KvBlockSlot slot);
  const Block& block(std::uint32_t gpu, KvBlockSlot slot) const;
  std::size_t part_size() const { return layer_size() * decoder_.config().layers / layout_.parts; }
  TokenId token(std::size_t request, std::uint64_t position, const std::vector<DrawnToken>& answer) const;
  /// Tokens [first, first + count) through the layers of the model; draws the one behind them if `draws`.
  void advance(AttentionProvider& attention, SequenceId sequence, std::uint64_t first, std::uint64_t count, bool draws,
               std::vector<DrawnToken>& answer) const;
  /// Rows of K and V between the blocks of a sequence and the attention's cache.
  void fetch(const ServedSequence& sequence, HostAttention& attention) const;
  void keep(const ServedSequence& sequence, std::uint64_t tokens, const HostAttention& attention);

  const Decoder& decoder_;
  const ServingTrace& trace_;
  Layout layout_;
  std::vector<std::vector<std::optional<TokenId>>> texts_;  ///< [request]
  DrawnAnswers answers_;
  std::vector<std::vector<Block>> gpus_;                 ///< [gpu][slot]
  std::map<std::uint32_t, std::vector<Block>> swapped_;  ///< by request
};

}  // namespace csdsim::host
