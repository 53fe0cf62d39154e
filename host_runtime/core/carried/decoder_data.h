// Executes the operations of a plan on a real checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "contracts/row_quantisation.h"
#include "host_runtime/core/attention/kv_cache.h"
#include "host_runtime/core/carried/carried_feature.h"
#include "host_runtime/core/carried/decoder_rows.h"
#include "host_runtime/core/carried/tensor_store.h"
#include "host_runtime/core/decoder/decoder.h"
#include "host_runtime/core/decoder/token_sampling.h"
#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/planner.h"

namespace csdsim::host {

/// Runs a decoder one operation at a time. Work on GPU or host is computed when the operation starts; a drive loads and
/// stores the data of its commands. Sequence i of the plan is prompt i. All tensors are in a TensorStore under the
/// names and places that the plan gives them, so an operation whose input was not transferred fails with an
/// InternalError.
///
/// The sequences of an operation are those of its tag (OpTag::sequences); a tag without them stands for all sequences
/// of the mini-batch. free_kv frees sequences in the kv_cache tensors that it writes.
///
/// K and V on GPU or host:
/// - append_kv appends the new K and V to the kv_cache tensors that it writes; if it reads no new_kv, all tokens of the
///   other kv_cache tensors that it reads.
/// - gather_kv makes a new_kv of all tokens of the kv_cache that it reads, for a drive to append.
/// - attention (decode) first appends them to each kv_cache that it writes. It then computes dense attention, with the
///   bits of DenseAttention, over all kv_cache tensors of the output's heads that it reads or writes, in the order of
///   their parts. If it writes a partial_output, this covers the tokens of these tensors only.
/// - merge_attention merges all partial_outputs that it reads into an attention_output.
/// - A kv_cache that does not exist yet is created empty by the first operation that writes it without reading it.
///
/// K and V that are kept with few bits, after set_kv_format(): append_kv that writes a new_kv quantises it. Whatever
/// appends it to a kv_cache dequantises it, so that every processor attends to the same values, those of the new token
/// included. Recomputed K and V are not quantised, and neither is what the prefill attends to.
///
/// K and V in drives that divide the tokens: part d of a prefill's new_kv has the tokens of drive d, sequence after
/// sequence; a partial_output has a row for each sequence of the drive's operation. Processors may hold further parts
/// of the prompt (KvDivision::prompt_piece()).
///
/// K and V in files: range i of an operation is sequence i of the operation, token after token, K before V of the
/// cache's heads.
/// - write_file writes all tokens of the kv_cache that it reads, or if it reads none, the tokens of new_kv.
/// - read_file makes the kv_cache that it writes from the bytes that it has read.
///
/// Recomputation of K and V:
/// - attention_inputs appends the hidden states (before the norm, in the backend's precision) to every layer_input that
///   it writes.
/// - append_kv appends the layer_inputs that it reads to those that it writes.
/// - recompute_kv computes every kv_cache that it writes from all layer_inputs that it reads, in the order of their
///   steps. The result has the same bits as the K and V that attention_inputs computed.
/// - A transfer of some tokens (TensorUses::tokens) copies these rows of a kv_cache or a layer_input, and recompute_kv
///   computes K and V of these tokens only: as one batch of their rows, so that a backend may round differently.
///
/// Activations on drives: write_blocks writes the rows of a layer_input in fp16, those of its tokens if it names some,
/// behind those that are there; read_blocks makes a layer_input of all rows. Each write begins a block.
///
/// The operations of features (neurons in flash, pools of tokens...) are theirs: CarriedFeature::serves().
class DecoderData final : public OperationData, private TokenProgress {
 public:
  /// `mini_batches` and `division` as in the plan. UserError for an empty prompt, a token id outside the vocabulary, or
  /// a context beyond the model's positions. `decoder` must outlive this.
  DecoderData(const host::Decoder& decoder, std::vector<std::vector<host::TokenId>> prompts,
              std::uint32_t output_tokens, std::uint32_t mini_batches, const host::SamplingOptions& sampling,
              host::KvDivision division = {});
  /// The same with output tokens of each prompt.
  DecoderData(const host::Decoder& decoder, std::vector<std::vector<host::TokenId>> prompts,
              const std::vector<std::uint32_t>& output_tokens, std::uint32_t mini_batches,
              const host::SamplingOptions& sampling, host::KvDivision division = {});

  /// Chooses new token `index` of a sequence instead of the sampler, for teacher forcing.
  using Chooser =
      std::function<host::TokenId(std::uint32_t sequence, std::size_t index, std::span<const float> logits)>;
  void set_chooser(Chooser chooser) { chooser_ = std::move(chooser); }

  /// Called with every new token and the logits that it was chosen by.
  using Watcher = std::function<void(std::uint32_t sequence, std::span<const float> logits, host::TokenId chosen)>;
  void set_watcher(Watcher watcher) { watcher_ = std::move(watcher); }

  /// Sets the format of K and V. Not quantised unless called.
  void set_kv_format(const RowQuantisation& format) { kv_format_ = format; }

  /// Adds the features of the run, which `sources` must outlive. Where one of them proposes tokens, a decode step
  /// verifies these. Tokens are those of steps of one token, whatever the sampling: a proposed token is accepted if it
  /// is the one that its step chooses. K and V of tokens that were not accepted leave the caches when the next ones
  /// come.
  void set_features(RunFeatures features, const CheckpointSources& sources = {});
  const RunFeatures* features() const override { return &features_; }
  const TokenProgress* progress() const override { return proposer_ != nullptr ? this : nullptr; }

  void perform(const host::Operation& op) override;
  void ended(const host::Operation& op) override;
  void load_append(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                   HeadRange heads, std::span<Half> k, std::span<Half> v) override;
  void load_attend(const host::Operation& op, std::size_t index, HeadRange heads, std::span<Half> q, std::span<Half> k,
                   std::span<Half> v) override;
  void store_output(const host::Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out) override;
  void store_partial(const host::Operation& op, std::size_t index, HeadRange heads, std::span<const Half> out,
                     std::span<const float> softmax) override;
  void load_queries(const host::Operation& op, std::size_t index, HeadRange heads, std::span<Half> q) override;
  void store_scores(const host::Operation& op, std::size_t index, HeadRange heads, std::uint32_t first,
                    std::span<const float> scores) override;
  void store_rows(const host::Operation& op, std::size_t index, std::uint32_t first, std::uint32_t count,
                  HeadRange heads, std::span<const Half> k, std::span<const Half> v) override;

  void load_blocks(const host::Operation& op, std::size_t index, std::span<std::byte> bytes) override;
  void store_blocks(const host::Operation& op, std::size_t index, std::span<const std::byte> bytes) override;

  void load_network_input(const host::Operation& op, std::uint32_t first, std::span<Half> x,
                          std::span<Half> bias) override;
  void store_partial_sum(const host::Operation& op, std::span<const float> y) override;

  void load_file(const host::Operation& op, std::size_t index, Bytes at, std::span<std::byte> bytes) override;
  void store_file(const host::Operation& op, std::size_t index, Bytes at, std::span<const std::byte> bytes) override;

  // For features.
  const host::Decoder& decoder() const { return decoder_; }
  /// All tensors that exist now.
  TensorStore& tensors() { return tensors_; }
  const TensorStore& tensors() const { return tensors_; }
  /// The sequences of the operation's step, in the order of their rows.
  std::vector<StepSequence> sequences_of(const host::Operation& op) const;
  /// First row and number of rows of `sequence` in the tensors of the operation's step.
  host::Share rows_of(const host::Operation& op, std::uint32_t sequence) const;
  /// The hidden states at the place where the operation reads them.
  std::shared_ptr<host::HiddenStates>& hidden(const host::Operation& op);
  /// Tokens of its prompt; the prompt and all that was generated.
  std::uint32_t prompt_of(SequenceId sequence) const;
  std::vector<host::TokenId> tokens_of(SequenceId sequence) const;
  /// Proposed tokens of the latest step of a sequence that were accepted.
  std::uint32_t accepted(SequenceId sequence) const { return accepted_.at(sequence.value); }
  /// Tokens that each sequence generates.
  const std::vector<std::uint32_t>& outputs() const { return outputs_; }
  /// Operations on blocks that hold activations.
  static bool moves_activations(const host::Operation& op);

  /// New tokens so far, one list per prompt.
  const std::vector<std::vector<host::TokenId>>& generated() const { return generated_; }
  /// Digest of the fp16 outputs of decode attention, in the order of steps and layers for each sequence. Two runs have
  /// the same digest if all their outputs are equal.
  std::uint64_t attention_digest() const;

 private:
  using Sequences = std::vector<StepSequence>;

  std::uint32_t generated(SequenceId sequence) const override;
  std::uint32_t proposed(SequenceId sequence) const override;
  std::span<const TokenId> proposed_tokens(SequenceId sequence) const;
  /// What a drive operation appends, in `dequantised` if K and V are quantised. InternalError if it names no such
  /// tensor.
  const NewKv& new_kv_of_drive(const host::Operation& op, NewKv& dequantised) const;
  /// Rows of the step whose K and V are in a new_kv tensor.
  std::vector<host::Share> rows_in(const host::Operation& op, const TensorName& new_kv) const;
  /// The feature whose operation it is; null: none.
  CarriedFeature* serving(const host::Operation& op) const;
  CarriedFeature& of_feature(const host::Operation& op) const;
  std::size_t rows_of(const host::Operation& op) const;
  void embed(const host::Operation& op);
  void attention_inputs(const host::Operation& op);
  void prefill_attention(const host::Operation& op);
  void decode_attention(const host::Operation& op);
  /// Computes one attention_output or partial_output of the operation.
  void attend(const host::Operation& op, const TensorName& output);
  void merge_attention(const host::Operation& op);
  LayerInputs layer_inputs_of(const host::Operation& op, const host::HiddenStates& states) const;
  void keep_layer_input(const host::Operation& op, const TensorName& name, const LayerInputs& more);
  void append_to_layer_inputs(const host::Operation& op);
  void recompute_kv(const host::Operation& op);
  /// A transfer of a part of the tokens of a cache, or of activations.
  void copy_tokens(const host::Operation& op);
  void quantise_new_kv(const host::Operation& op);
  /// A new_kv tensor that an operation reads, dequantised if it is quantised.
  NewKv new_kv_of(const host::Operation& op, const TensorName& name) const;
  void append_to_caches(const host::Operation& op);
  void append_to_cache(const host::Operation& op, const TensorName& name);
  void gather_tokens(const host::Operation& op);
  void free_in_caches(const host::Operation& op);
  /// The rows of a sequence that a file operation moves, as bytes.
  std::vector<Half> file_rows(const host::Operation& op, std::size_t index) const;
  void keep_what_was_read(const host::Operation& op);
  /// The attention outputs that an operation reads, all heads together.
  std::shared_ptr<const host::Tensor> attention_of(const host::Operation& op);
  void finish_attention(const host::Operation& op);
  void load_activations(const host::Operation& op, std::span<std::byte> bytes);
  void store_activations(const host::Operation& op, std::span<const std::byte> bytes);
  void sample(const host::Operation& op);
  host::TokenId choose(std::uint32_t sequence, std::span<const float> logits) const;
  void add_to_digests(const host::Operation& op, std::span<const Half> outputs);
  /// A cache without tokens, for one layer and the operation's sequences.
  host::HostKvCache empty_cache(const host::Operation& op, HeadRange heads) const;
  /// The cache with this name, for appending. Creates it if it does not exist, and copies it first if it is shared.
  host::HostKvCache& growing_cache(const host::Operation& op, const TensorName& name);

  const host::Decoder& decoder_;
  std::vector<std::vector<host::TokenId>> prompts_;
  std::vector<std::uint32_t> outputs_;  ///< tokens that each sequence generates
  host::SamplingOptions sampling_;
  host::KvDivision division_;
  Chooser chooser_;
  Watcher watcher_;
  RowQuantisation kv_format_;
  std::vector<host::Share> mini_batches_;  ///< mini-batches of operations whose tag names no sequences
  TensorStore tensors_;
  /// Bytes of file operations that are running, by range: what they write, and what they have read so far.
  std::map<host::OperationId, std::map<std::size_t, std::vector<Half>>> file_data_;
  RunFeatures features_;
  std::vector<CarriedFeature*> carried_;  ///< carried halves of the features that serve operations
  CarriedFeature* proposer_ = nullptr;    ///< the one that proposes tokens
  std::vector<std::vector<host::TokenId>> generated_;
  std::vector<std::uint32_t> accepted_;  ///< by sequence
  std::vector<std::uint64_t> digest_;    ///< by sequence, so that the order of mini-batches does not matter
  /// Attention outputs of the step's tokens, [sequence][token], until it is known which of them are accepted.
  std::vector<std::vector<std::vector<Half>>> verified_;
};

}  // namespace csdsim::host
