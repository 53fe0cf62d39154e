// Operations of a plan as work on a real checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/decoder.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/sampling.h"

namespace csdsim::host {

/// Runs a decoder operation by operation: GPU kinds are computed when they start, attention goes through load_ and
/// store_output. Sequence i of the plan is prompt i.
class DecoderData final : public OperationData {
 public:
  /// `mini_batches` as in the plan. UserError for an empty prompt, a token id outside the vocabulary, or a context
  /// beyond the model's positions. `decoder` must outlive this.
  DecoderData(const host::Decoder& decoder, std::vector<std::vector<host::TokenId>> prompts,
              std::uint32_t output_tokens, std::uint32_t mini_batches, const host::SamplingOptions& sampling);

  /// Who decides on new token `index` of a sequence in the place of the sampler: teacher forcing.
  using Chooser =
      std::function<host::TokenId(std::uint32_t sequence, std::size_t index, std::span<const float> logits)>;
  void set_chooser(Chooser chooser) { chooser_ = std::move(chooser); }

  void perform(const host::Operation& op) override;
  void load_append(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                   host::HeadRange heads, std::span<Half> k, std::span<Half> v) override;
  void load_attend(const host::Operation& op, std::size_t index, host::HeadRange heads, std::span<Half> q,
                   std::span<Half> k, std::span<Half> v) override;
  void store_output(const host::Operation& op, std::size_t index, host::HeadRange heads,
                    std::span<const Half> out) override;

  /// New tokens, a list a prompt, so far.
  const std::vector<std::vector<host::TokenId>>& generated() const { return generated_; }
  /// Order-sensitive digest of the fp16 outputs of decoding attention, by (step, layer, sequence): equal for two runs
  /// exactly if every output was.
  std::uint64_t attention_digest() const;

 private:
  /// K and V of a prefill on their way to the drives.
  struct Shipment {
    std::vector<Half> k;  ///< [row][kv_heads][d]
    std::vector<Half> v;
    std::uint64_t elements_left = 0;  ///< of k, not loaded yet
  };
  struct MiniBatch {
    host::Share sequences;
    std::vector<std::uint32_t> lengths;  ///< rows of each sequence in the current step
    std::vector<std::uint32_t> first_row;
    host::HiddenStates hidden;
    host::AttentionInputs inputs;
    host::Tensor attention;     ///< prefill: output of dense attention
    std::vector<Half> q, k, v;  ///< decode: one row a sequence
    std::vector<Half> out;      ///< decode: [row][heads][d]
  };

  MiniBatch& mini_batch(const host::Operation& op) { return mini_batches_.at(op.tag.mini_batch.value); }
  std::size_t row_of(const MiniBatch& mb, const host::Operation& op, std::size_t index) const;
  void embed(const host::Operation& op, MiniBatch& mb);
  void attention_inputs(const host::Operation& op, MiniBatch& mb);
  void finish_layer(const host::Operation& op, MiniBatch& mb);
  void sample(MiniBatch& mb);

  const host::Decoder& decoder_;
  std::vector<std::vector<host::TokenId>> prompts_;
  host::SamplingOptions sampling_;
  Chooser chooser_;
  std::vector<MiniBatch> mini_batches_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Shipment> shipments_;  ///< by mini-batch and layer
  std::vector<std::vector<host::TokenId>> generated_;
  std::vector<std::uint64_t> digest_;  ///< by sequence, so that the order of mini-batches does not matter
};

}  // namespace csdsim::host
