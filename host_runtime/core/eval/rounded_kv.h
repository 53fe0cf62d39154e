// Decoding attention over K and V that are kept with few bits per element.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "contracts/row_quantisation.h"
#include "host_runtime/core/attention/attention_provider.h"

namespace csdsim::host {

/// Rounds every K and V to what their format keeps, those of a prompt and of new tokens, and hands them on. K and V of
/// a token and KV head are a row each. The attention of a prefill, on the backend, is not affected.
class RoundedKv final : public AttentionProvider {
 public:
  /// `inner` must outlive this. UserError if the groups do not divide a head.
  RoundedKv(AttentionProvider& inner, const RowQuantisation& format, std::uint32_t head_dim);

  void create_sequence(SequenceId sequence) override { inner_.create_sequence(sequence); }
  void free_sequence(SequenceId sequence) override { inner_.free_sequence(sequence); }
  void store(LayerId layer, std::span<const SequenceSlice> slices, std::span<const Half> k,
             std::span<const Half> v) override;
  bool learns_from_prompt() const override { return inner_.learns_from_prompt(); }
  void learn(LayerId layer, std::span<const SequenceSlice> slices, std::span<const float> q) override {
    inner_.learn(layer, slices, q);
  }
  bool speculates() const override { return inner_.speculates(); }
  void speculate(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q) override {
    inner_.speculate(layer, sequences, q);
  }
  void attend(LayerId layer, std::span<const SequenceId> sequences, std::span<const float> q, std::span<const Half> k,
              std::span<const Half> v, std::span<Half> out) override;

 private:
  std::vector<Half> rounded(std::span<const Half> rows) const;

  AttentionProvider& inner_;
  RowQuantisation format_;
  std::uint32_t head_dim_;
};

}  // namespace csdsim::host
