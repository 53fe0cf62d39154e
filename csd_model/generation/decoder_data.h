// Operations of a plan as work on a real checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "csd_model/generation/operation_data.h"
#include "host_runtime/core/decoder.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/sampling.h"

namespace csd_model {

/// Runs a decoder operation by operation: GPU kinds are computed when they start, attention goes through load_ and
/// store_output. Sequence i of the plan is prompt i.
class DecoderData final : public OperationData {
 public:
  /// `mini_batches` as in the plan. UserError for an empty prompt, a token id outside the vocabulary, or a context
  /// beyond the model's positions. `decoder` must outlive this.
  DecoderData(const csdsim::host::Decoder& decoder, std::vector<std::vector<csdsim::host::TokenId>> prompts,
              std::uint32_t output_tokens, std::uint32_t mini_batches, const csdsim::host::SamplingOptions& sampling);

  /// Who decides on new token `index` of a sequence in the place of the sampler: teacher forcing.
  using Chooser =
      std::function<csdsim::host::TokenId(std::uint32_t sequence, std::size_t index, std::span<const float> logits)>;
  void set_chooser(Chooser chooser) { chooser_ = std::move(chooser); }

  void perform(const csdsim::host::Operation& op) override;
  void load_append(const csdsim::host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                   csdsim::host::HeadRange heads, std::span<csdsim::Half> k, std::span<csdsim::Half> v) override;
  void load_attend(const csdsim::host::Operation& op, std::size_t index, csdsim::host::HeadRange heads,
                   std::span<csdsim::Half> q, std::span<csdsim::Half> k, std::span<csdsim::Half> v) override;
  void store_output(const csdsim::host::Operation& op, std::size_t index, csdsim::host::HeadRange heads,
                    std::span<const csdsim::Half> out) override;

  /// New tokens, a list a prompt, so far.
  const std::vector<std::vector<csdsim::host::TokenId>>& generated() const { return generated_; }
  /// Order-sensitive digest of the fp16 outputs of decoding attention, by (step, layer, sequence): equal for two runs
  /// exactly if every output was.
  std::uint64_t attention_digest() const;

 private:
  /// K and V of a prefill on their way to the drives.
  struct Shipment {
    std::vector<csdsim::Half> k;  ///< [row][kv_heads][d]
    std::vector<csdsim::Half> v;
    std::uint64_t elements_left = 0;  ///< of k, not loaded yet
  };
  struct MiniBatch {
    csdsim::host::Share sequences;
    std::vector<std::uint32_t> lengths;  ///< rows of each sequence in the current step
    std::vector<std::uint32_t> first_row;
    csdsim::host::HiddenStates hidden;
    csdsim::host::AttentionInputs inputs;
    csdsim::host::Tensor attention;     ///< prefill: output of dense attention
    std::vector<csdsim::Half> q, k, v;  ///< decode: one row a sequence
    std::vector<csdsim::Half> out;      ///< decode: [row][heads][d]
  };

  MiniBatch& mini_batch(const csdsim::host::Operation& op) { return mini_batches_.at(op.tag.mini_batch.value); }
  std::size_t row_of(const MiniBatch& mb, const csdsim::host::Operation& op, std::size_t index) const;
  void embed(const csdsim::host::Operation& op, MiniBatch& mb);
  void attention_inputs(const csdsim::host::Operation& op, MiniBatch& mb);
  void finish_layer(const csdsim::host::Operation& op, MiniBatch& mb);
  void sample(MiniBatch& mb);

  const csdsim::host::Decoder& decoder_;
  std::vector<std::vector<csdsim::host::TokenId>> prompts_;
  csdsim::host::SamplingOptions sampling_;
  Chooser chooser_;
  std::vector<MiniBatch> mini_batches_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Shipment> shipments_;  ///< by mini-batch and layer
  std::vector<std::vector<csdsim::host::TokenId>> generated_;
  std::vector<std::uint64_t> digest_;  ///< by sequence, so that the order of mini-batches does not matter
};

}  // namespace csd_model
