// K and V of a mini-batch computed again on the host, as the run computed them.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "host_runtime/core/attention/attention_provider.h"
#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/plan/operation.h"

namespace csdsim::host {

/// Decodes the known tokens of a mini-batch once more: the prefill, then step by step with the attention that the
/// drives were asked for. The rows of a batch are those of the run, so that K and V have the same bits.
class KvReplay final : public AttentionProvider {
 public:
  struct Choice {
    Method method = Method::dense;
    std::uint32_t components = 0;
    std::uint32_t top_k = 0;
    std::uint32_t local = 0;
  };
  /// By sequence and the tokens that it has in the step.
  using Choices = std::map<std::pair<SequenceId, std::uint32_t>, Choice>;

  /// A sequence of the mini-batch with all of its tokens that are known.
  struct Text {
    SequenceId sequence;
    std::uint32_t prompt = 0;  ///< the first ones
    std::vector<TokenId> tokens;
  };

  /// Runs the prefill. `decoder` and `choices` must outlive this.
  KvReplay(const Decoder& decoder, const Choices& choices, std::span<const Text> texts);

  /// Feeds the tokens that the texts have more than at the last call.
  void advance(std::span<const Text> texts);
  /// K and V of tokens [first, first + count) as [head][token][d].
  void copy(SequenceId sequence, LayerId layer, std::uint32_t first, std::uint32_t count, HeadRange heads,
            std::span<Half> k, std::span<Half> v) const;

  void create_sequence(SequenceId sequence) override { cache_.create(sequence); }
  void free_sequence(SequenceId sequence) override { cache_.free(sequence); }
  void store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
             std::span<const Half> v) override;
  void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q, std::span<const Half> k,
              std::span<const Half> v, std::span<Half> out) override;

 private:
  const Decoder& decoder_;
  const Choices& choices_;
  HostKvCache cache_;
  std::size_t generated_ = 0;  ///< tokens of each sequence behind its prompt that were fed
};

}  // namespace csdsim::host
