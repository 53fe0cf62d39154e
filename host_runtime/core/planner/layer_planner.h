// The common part of systems that compute layer by layer on the GPU: which differ in where K and V go and who attends.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ratio.h"
#include "host_runtime/core/planner/planner.h"

namespace csdsim::host {

/// Where the weights of the decoder layers are. Embeddings and the language-model head stay in GPU memory.
struct WeightPlacement {
  /// Share of each layer that is in host memory. It is copied to the GPU for each layer of each step, once for all
  /// mini-batches.
  Ratio on_host{0, 1};
  /// Share of each layer that is in a file of a drive. For each layer of each step it is read into host memory, then
  /// copied to the GPU. What is neither there nor on the host is in GPU memory.
  Ratio in_files{0, 1};
  /// Layers of these weights that the GPU holds at a time, and at most as many of those from files in host memory.
  std::uint32_t buffers = 2;
};

/// Prefill: for each layer and mini-batch, the GPU projects q, k, v, attends over the prompts and finishes the layer,
/// while a system keeps K and V. Decode: the GPU projects q, k, v of one token per sequence, a system attends, the GPU
/// finishes the layer. Mini-batches do not depend on each other, so that one may use the GPU while another one waits.
/// Weights are in GPU memory, or come from host memory or files layer by layer. The layers' files are on the drives in
/// turn.
class LayerPlanner : public Planner {
 public:
  std::vector<PlacedTensor> resident() const override;
  /// For each layer the file of its weights, then layer_files().
  std::vector<PlannedFile> files() const final;
  bool next_step(OperationSink& sink) final;

 protected:
  using Ids = std::vector<OperationId>;

  /// A layer of a mini-batch in the step that is being emitted.
  struct Part {
    OpTag tag;
    Share sequences;
    std::span<const std::uint32_t> prompts;  ///< tokens of each sequence's prompt
    std::uint64_t tokens = 0;                ///< that the step adds, over all sequences

    std::uint32_t layer() const { return tag.layer->value; }
    std::uint32_t mini_batch() const { return tag.mini_batch.value; }
  };
  /// Attention outputs at the GPU, and the operations after which they are there.
  struct Outputs {
    Ids ready;
    std::vector<TensorName> tensors;
  };

  /// K and V are split by `shards`, KV heads that cover the model. Throws UserError for inconsistent sizes
  /// (mini-batches and batch) and shares of weights beyond the whole.
  LayerPlanner(const PlannerInputs& inputs, std::vector<HeadRange> shards, const WeightPlacement& weights = {});

  /// Operations that have to end before the prefill may compute K and V of this part: room for them.
  virtual Ids room_for(const Part&) const { return {}; }
  /// GPU memory that the attention of the prefill needs while it runs. None for a fused kernel.
  virtual Bytes prefill_workspace(const Part&) const { return {}; }
  /// The weights of all pairs of tokens of a prompt before and after the softmax.
  Bytes attention_weights(const Part& part) const;
  /// K and V of the prefill, which `projected` makes, go where the system keeps them.
  virtual void keep(OperationSink& sink, const Part& part, OperationId projected) = 0;
  /// k and v of the new tokens join the cache, and their queries attend.
  virtual Outputs attend(OperationSink& sink, const Part& part, OperationId projected) = 0;
  /// The files that the system reads and writes in a layer, in the order of their use.
  virtual std::vector<PlannedFile> layer_files(std::uint32_t) const { return {}; }
  /// The last operation of a decode step has been emitted.
  virtual void step_emitted() {}

  const PlannerInputs& inputs() const { return in_; }
  const ModelShape& model() const { return in_.model; }
  const std::vector<HeadRange>& shards() const { return shards_; }
  std::size_t mini_batches() const { return mini_batches_.size(); }
  /// The part at the first step of a span without prefill.
  Part first_part(std::uint32_t layer, std::uint32_t mini_batch) const {
    return part_of({Phase::decode, in_.span.first_step, LayerId{layer}, MiniBatch{mini_batch}});
  }
  /// Tokens in the cache of the part's sequences after the step, together.
  std::uint64_t context(const Part& part) const;

  /// The path to the files of a layer.
  Resource files_of(std::uint32_t layer) const { return Resource::file(DriveIndex{layer % in_.drives}); }
  /// A transfer of tensors over the GPU's link, after `deps`. The source drops them, unless it is to keep its copy.
  static OperationId transfer(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
                              const std::vector<SizedTensor>& tensors, bool keep_copy = false);
  /// K and V at `place` before the first step of a span without the prefill.
  std::vector<PlacedTensor> caches_at(Place place) const;

  SizedTensor new_kv(const Part& part, HeadRange heads) const;
  SizedTensor queries(const Part& part, HeadRange heads) const;
  SizedTensor attention_output(const Part& part, HeadRange heads) const;
  /// K and V of the part's sequences after the step, and before it.
  SizedTensor cache(const Part& part, HeadRange heads) const;
  SizedTensor cache_before(const Part& part, HeadRange heads) const;

 private:
  void prefill(OperationSink& sink);
  void decode(OperationSink& sink, std::uint32_t step);
  Part part_of(OpTag tag) const;
  /// `before`, and the end of the latest layer of any mini-batch if mini-batches do not overlap.
  Ids in_turn(Ids before) const;
  /// Emits the embeddings; returns the operation that makes the input of the first layer, for each mini-batch.
  Ids embed(OperationSink& sink, Phase phase, std::uint32_t step);
  void sample(OperationSink& sink, Phase phase, std::uint32_t step, const Ids& hidden);
  /// Copies the layer's weights that are in host memory or in a file. Nothing if there are none.
  Ids copy_weights(OperationSink& sink, const OpTag& tag);
  SizedTensor host_weights(LayerId layer) const;
  SizedTensor file_weights(LayerId layer) const;
  /// Those of the two that are not empty.
  std::vector<SizedTensor> moved_weights(LayerId layer) const;
  static std::string weight_file(LayerId layer);
  /// Adds the last operation of a layer.
  OperationId finish(OperationSink& sink, const Part& part, Outputs outputs);
  SizedTensor hidden_states(const Part& part) const;
  TensorUses projections(const Part& part) const;
  TensorUses layer_end(const Part& part, std::vector<TensorName> outputs) const;

  PlannerInputs in_;
  std::vector<HeadRange> shards_;
  WeightPlacement weights_;
  std::vector<Share> mini_batches_;  ///< sequences of each mini-batch
  Ids weights_freed_;                ///< operations in order, each of which frees a buffer of weights
  Ids weight_users_;                 ///< ends of the layer's earlier mini-batches, which use the copied weights
  bool prefill_done_ = false;
  std::uint32_t decoded_ = 0;
  Ids sampled_;                              ///< [mini_batch] the previous step's sample; empty before the first step
  std::optional<OperationId> latest_layer_;  ///< the finish_layer that was emitted last
};

}  // namespace csdsim::host
