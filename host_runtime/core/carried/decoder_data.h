// Operations of a plan as work on a real checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/carried/operation_data.h"
#include "host_runtime/core/carried/tensor_store.h"
#include "host_runtime/core/decoder.h"
#include "host_runtime/core/kv_cache.h"
#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/token_sampling.h"

namespace csdsim::host {

/// Runs a decoder operation by operation: work of processors is done when it starts, drives load and store what their
/// commands carry. Sequence i of the plan is prompt i. All tensors lie in a TensorStore under the names that the plan
/// gives them, so that a forgotten transfer is an InternalError.
///
/// On a processor (GPU or host) append_kv keeps new K and V there. Attention of decode appends them to the kv_cache
/// that it writes, if it writes one, and attends densely, with the bits of DenseAttention, over every kv_cache of the
/// output's heads that it reads or writes, in the order of their parts. Where it writes a partial_output, that covers
/// these tokens only; merge_attention makes an attention_output of all partial_outputs that it reads. A kv_cache that
/// is nowhere yet begins with the first operation that writes without reading it.
///
/// attention_inputs adds the hidden states (in the backend's precision, before the norm) to every layer_input that it
/// writes; append_kv adds the layer_inputs that it reads to the one that it writes. recompute_kv makes every kv_cache
/// that it writes of all layer_inputs that it reads, in the order of their steps, with the bits that the K and V had
/// that attention_inputs made of them.
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
  void ended(const host::Operation& op) override { tensors_.drop(op); }
  void load_append(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                   HeadRange heads, std::span<Half> k, std::span<Half> v) override;
  void load_attend(const host::Operation& op, std::size_t index, HeadRange heads, std::span<Half> q, std::span<Half> k,
                   std::span<Half> v) override;
  void store_output(const host::Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out) override;
  void store_partial(const host::Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out,
                     std::span<const float> softmax) override;

  /// What is kept now.
  const TensorStore& tensors() const { return tensors_; }
  /// New tokens so far, a list per prompt.
  const std::vector<std::vector<host::TokenId>>& generated() const { return generated_; }
  /// Order-sensitive digest of the fp16 outputs of decoding attention, by (step, layer, sequence): equal for two runs
  /// exactly if every output was.
  std::uint64_t attention_digest() const;

 private:
  struct MiniBatch {
    host::Share sequences;
    std::vector<std::uint32_t> lengths;  ///< rows of each sequence in the step that was embedded last
    std::vector<std::uint32_t> first_row;
  };

  MiniBatch& mini_batch(const host::Operation& op) { return mini_batches_.at(op.tag.mini_batch.value); }
  /// First row and rows of sequence `sequence` in the tensors of the operation's step.
  host::Share rows_of(const host::Operation& op, std::uint32_t sequence) const;
  std::size_t rows_of(const host::Operation& op) const;
  void embed(const host::Operation& op, MiniBatch& mb);
  void attention_inputs(const host::Operation& op);
  void prefill_attention(const host::Operation& op, const MiniBatch& mb);
  void decode_attention(const host::Operation& op, const MiniBatch& mb);
  /// One attention_output or partial_output of the operation.
  void attend(const host::Operation& op, const MiniBatch& mb, const TensorName& output);
  void merge_attention(const host::Operation& op);
  LayerInputs layer_inputs_of(const host::Operation& op, const host::HiddenStates& states) const;
  void keep_layer_input(const host::Operation& op, const TensorName& name, const LayerInputs& more);
  void append_to_layer_inputs(const host::Operation& op);
  void recompute_kv(const host::Operation& op);
  void append_to_caches(const host::Operation& op);
  void append_to_cache(const host::Operation& op, const TensorName& name);
  void finish_layer(const host::Operation& op, const MiniBatch& mb);
  void sample(const host::Operation& op, const MiniBatch& mb);
  /// The residual stream where the operation reads it.
  std::shared_ptr<host::HiddenStates>& hidden(const host::Operation& op);
  /// A cache of one layer for the mini-batch's sequences.
  host::HostKvCache empty_cache(const host::Operation& op, HeadRange heads) const;
  /// K and V that a processor keeps under this name, ready to grow: a copy of its own.
  host::HostKvCache& growing_cache(const host::Operation& op, const TensorName& name);

  const host::Decoder& decoder_;
  std::vector<std::vector<host::TokenId>> prompts_;
  host::SamplingOptions sampling_;
  Chooser chooser_;
  std::vector<MiniBatch> mini_batches_;
  TensorStore tensors_;
  std::vector<std::vector<host::TokenId>> generated_;
  std::vector<std::uint64_t> digest_;  ///< by sequence, so that the order of mini-batches does not matter
};

}  // namespace csdsim::host
