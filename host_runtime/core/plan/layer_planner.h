// The common part of systems that compute layer by layer on the GPU: which differ in where K and V go and who attends.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/ratio.h"
#include "contracts/row_quantisation.h"
#include "host_runtime/core/plan/feed_forward_plan.h"
#include "host_runtime/core/plan/planner.h"
#include "host_runtime/core/plan/software.h"
#include "host_runtime/core/plan/step_scheduler.h"

namespace csdsim::host {

/// The place of the weights of the decoder layers. Embeddings and the language-model head stay in GPU memory.
struct WeightPlacement {
  /// Share of each layer that is in host memory. It is copied to the GPU for each layer of each step, once for all
  /// mini-batches.
  Ratio on_host{0, 1};
  /// Share of each layer that is in a file of a drive. For each layer of each step it is read into host memory, then
  /// copied to the GPU. What is neither there nor on the host is in GPU memory.
  Ratio in_files{0, 1};
  /// Layers of these weights that the GPU holds at a time, and at most as many of those from files in host memory.
  std::uint32_t buffers = 2;
  /// W_K and W_V of each layer are copied from the host by themselves, before its other weights.
  bool kv_first = false;
};

/// Prefill: for each layer and mini-batch, the GPU projects q, k, v, attends over the prompts and finishes the layer,
/// while a system keeps K and V. Decode: the GPU projects q, k, v of one token per sequence, a system attends, the GPU
/// finishes the layer. Mini-batches do not depend on each other, so that one may use the GPU while another one waits.
/// Weights are in GPU memory, or come from host memory or files layer by layer. The layers' files are on the drives in
/// turn. With several GPUs, the mini-batches are on them in turn; each GPU has the weights and gets its own copy of
/// those in host memory. Weights in files are for one GPU. StepScheduler says which sequences take part in
/// a step; a mini-batch without any is left out.
///
/// The GPU finishes a layer with one operation, finish_layer, unless a FeedForwardPlan says otherwise: for weights of
/// feed-forward networks that are in the block namespaces of drives.
class LayerPlanner : public Planner {
 public:
  /// Replaces finish_layer. Call it before the first step. UserError if weights are in host memory or files, too, or if
  /// there are several GPUs, or mini-batches that the plan does not take: a layer has one window of neurons.
  void set_feed_forward(std::unique_ptr<FeedForwardPlan> plan);

  std::vector<PlacedTensor> resident() const override;
  std::vector<PlannedBlocks> blocks() const override;
  /// For each layer the file of its weights, then layer_files().
  std::vector<PlannedFile> files() const final;
  bool next_step(OperationSink& sink) final;
  /// Layers ahead of the computation at which weights are copied.
  std::uint32_t layers_ahead() const override;
  bool decides_late() const final { return in_.workload.served() || in_.progress != nullptr; }
  void started(const Operation& op, SimTime now) final;
  void ended(const Operation& op, SimTime now) final;
  std::span<const Request> requests() const final { return scheduler_.requests(); }

 protected:
  using Ids = std::vector<OperationId>;

  /// A layer of a mini-batch in the step that is being emitted.
  struct Part {
    OpTag tag;
    std::span<const StepSequence> sequences;  ///< sequences of the mini-batch that take part in the step
    std::uint64_t tokens = 0;                 ///< that the step adds, over all sequences
    std::uint64_t kept = 0;                   ///< tokens in the cache of the mini-batch after the step,
    std::uint64_t left = 0;                   ///< and when the ending sequences have been freed
    std::span<const SequenceId> ending = {};  ///< sequences that end with the step, if they are to be freed

    std::uint32_t layer() const { return tag.layer->value; }
    std::uint32_t mini_batch() const { return tag.mini_batch.value; }
  };
  /// Attention outputs at the GPU, and the operations after which they are there.
  struct Outputs {
    Ids ready;
    std::vector<TensorName> tensors;
  };

  /// K and V are split by `shards`, KV heads that cover the model, and kept as `kv` says. Throws UserError for
  /// inconsistent sizes (mini-batches and batch), shares of weights beyond the whole, and groups of K and V that do not
  /// divide a head.
  LayerPlanner(const PlannerInputs& inputs, std::vector<HeadRange> shards, const WeightPlacement& weights = {},
               const RowQuantisation& kv = {});

  /// Operations that have to end before the prefill may compute K and V of this part: room for them.
  virtual Ids room_for(const Part&) const { return {}; }
  /// GPU memory that the attention of the prefill needs while it runs. None for a fused kernel.
  virtual Bytes prefill_workspace(const Part&) const { return {}; }
  /// The weights of all pairs of tokens of a prompt before and after the softmax.
  Bytes attention_weights(const Part& part) const;
  /// K and V of the prefill, which `projected` makes in the format in which they are kept, go where the system keeps
  /// them.
  virtual void keep(OperationSink& sink, const Part& part, OperationId projected) = 0;
  /// k and v of the new tokens join the cache, and their queries attend.
  virtual Outputs attend(OperationSink& sink, const Part& part, OperationId projected) = 0;
  /// k and v of a step in the format in which they are kept, in the parts in which they leave the GPU: one for each of
  /// the shards.
  virtual std::vector<SizedTensor> new_kv_parts(const Part& part) const;
  /// The files that the system reads and writes in a layer, in the order of their use.
  virtual std::vector<PlannedFile> layer_files(std::uint32_t) const { return {}; }
  /// K and V of the part's ending sequences are freed in the memory of processors. Called after keep() or attend(), if
  /// sequences end.
  virtual void release(OperationSink&, const Part&) {}
  /// Activations that enter the layer and that attention_inputs keeps besides.
  virtual std::vector<SizedTensor> kept_inputs(const Part&) const { return {}; }
  virtual Software software() const { return {}; }
  /// The layers of a decode step have been emitted; its samples follow.
  virtual void step_emitted() {}
  /// Requests have got a place, and the step's prefill follows: drives create their sequences.
  virtual void admit(OperationSink&, const OpTag&, const std::vector<SequenceId>&) {}
  /// Sequences end with the sample of a mini-batch, whose tag `part` has: drives free them.
  virtual void sequences_end(OperationSink&, const Part&, OperationId /*sampled*/) {}

  const PlannerInputs& inputs() const { return in_; }
  const ModelShape& model() const { return in_.model; }
  const std::vector<HeadRange>& shards() const { return shards_; }
  std::size_t mini_batches() const { return sampled_.size(); }
  /// The part at the first step of a batch's span.
  Part first_part(std::uint32_t layer, std::uint32_t mini_batch) const {
    const ScheduledStep& step = scheduler_.first_step();
    return part_of(step, {step.phase, step.number, LayerId{layer}, MiniBatch{mini_batch}});
  }
  const StepScheduler& scheduler() const { return scheduler_; }
  /// Tokens that the part's sequences attend over in a decode step, together.
  static std::uint64_t context(const Part& part);
  /// Tokens that a decode step adds to a sequence of the part, at most: several with drafts.
  static std::uint32_t most_tokens(const Part& part);

  /// The GPU of a mini-batch, and its memory.
  std::uint32_t gpu_index(const OpTag& tag) const { return tag.mini_batch.value % in_.gpus; }
  Resource gpu(const OpTag& tag) const { return Resource::gpu(gpu_index(tag)); }
  Place gpu_memory(const OpTag& tag) const { return Place::gpu(gpu_index(tag)); }

  /// The copies of the layer's weights to the GPU of the part; those of W_K and W_V alone if they are copied first.
  /// Nothing where they are on the GPU.
  const Ids& weights_copied(const Part& part) const { return gpus_[gpu_index(part.tag)].weights_copied; }
  const Ids& kv_weights_copied(const Part& part) const {
    return weights_.kv_first ? gpus_[gpu_index(part.tag)].kv_weights_copied : weights_copied(part);
  }

  /// The path to the files of a layer.
  Resource files_of(std::uint32_t layer) const { return Resource::file(DriveIndex{layer % in_.drives}); }
  /// A transfer of tensors over the link of the mini-batch's GPU, after `deps`. The source drops them, unless it is to
  /// keep its copy.
  OperationId transfer(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
                       const std::vector<SizedTensor>& tensors, bool keep_copy = false) const;
  /// K and V at `place` before the first step of a span without the prefill.
  std::vector<PlacedTensor> caches_at(Place place) const;

  /// The format of K and V in all places: quantised on the GPU when they have been projected.
  const RowQuantisation& kv_format() const { return kv_; }
  /// The attention of a decode step on any processor, `kept` of whose tokens it has in the format in which they are
  /// kept. Quantised ones are dequantised before it: a pass reads integers and writes fp16 to a workspace in the memory
  /// at `place`, which `uses` gets and which the attention then reads.
  ComputeWork attention_work(const Part& part, std::uint64_t kept, Place place, TensorUses& uses,
                             std::uint64_t queries = 1) const;
  /// The same for an attention whose work is known.
  ComputeWork with_dequantising(ComputeWork attention, const Part& part, std::uint64_t kept, Place place,
                                TensorUses& uses) const;

  /// K and V of all heads of a layer in the format in which they are kept.
  Bytes kept_kv(std::uint64_t tokens) const { return kept_kv(HeadRange{KvHead{0}, in_.model.kv_heads}, tokens); }
  Bytes kept_kv(HeadRange heads, std::uint64_t tokens) const;

  /// k and v of a step in the format in which they are kept.
  SizedTensor new_kv(const Part& part, HeadRange heads) const;
  SizedTensor queries(const Part& part, HeadRange heads) const;
  SizedTensor attention_output(const Part& part, HeadRange heads) const;
  /// K and V of the mini-batch after the step, before it, and when the ending sequences have been freed.
  SizedTensor cache(const Part& part, HeadRange heads) const { return cache_of(part, heads, part.kept); }
  SizedTensor cache_before(const Part& part, HeadRange heads) const {
    return cache_of(part, heads, part.kept - part.tokens);
  }
  SizedTensor cache_left(const Part& part, HeadRange heads) const { return cache_of(part, heads, part.left); }
  /// Frees the ending sequences in the cache of a processor's memory, after `deps`.
  OperationId free_cache(OperationSink& sink, Resource processor, const Part& part, HeadRange heads, Ids deps) const;

 private:
  /// Emits all operations of the step.
  void emit_step(OperationSink& sink);
  /// Emit the layer of a part, after `before`. Return its last operation.
  OperationId prefill_layer(OperationSink& sink, const Part& part, Ids before);
  OperationId decode_layer(OperationSink& sink, const Part& part, Ids before);
  static Part part_of(const ScheduledStep& step, OpTag tag);
  /// The part of the step that is being emitted, or nothing if the mini-batch is not in it.
  std::optional<Part> part_of(std::optional<LayerId> layer, std::uint32_t mini_batch) const;
  OpTag tag_of(std::optional<LayerId> layer) const { return {step_.phase, step_.number, layer, MiniBatch{0}}; }
  SizedTensor cache_of(const Part& part, HeadRange heads, std::uint64_t tokens) const;
  /// `before`, and the end of the latest layer of any mini-batch on the same GPU if mini-batches do not overlap.
  Ids in_turn(const OpTag& tag, Ids before) const;
  /// True if a GPU has a mini-batch of the step that is being emitted, the first ones left out.
  bool works_in_step(std::uint32_t gpu, std::uint32_t from) const;
  /// Emits the embeddings; returns the operation that makes the input of the first layer, for each mini-batch.
  Ids embed(OperationSink& sink);
  void sample(OperationSink& sink, const Ids& hidden);
  /// Copies the layer's weights that are in host memory or in a file to each GPU.
  void copy_weights(OperationSink& sink, LayerId layer);
  /// W_K and W_V that are in host memory, if they are copied first.
  SizedTensor host_kv_weights(LayerId layer) const;
  /// All other weights in host memory.
  SizedTensor host_weights(LayerId layer) const;
  SizedTensor file_weights(LayerId layer) const;
  /// Those of the three that are not empty.
  std::vector<SizedTensor> moved_weights(LayerId layer) const;
  static std::string weight_file(LayerId layer);
  /// Adds the last operation of a layer.
  OperationId finish(OperationSink& sink, const Part& part, Outputs outputs);
  SizedTensor hidden_states(const Part& part) const;
  TensorUses projections(const Part& part) const;
  TensorUses layer_end(const Part& part, std::vector<TensorName> outputs) const;
  /// The GPU quantises k and v of a step, which `projected` has made. Returns the operation after which they have the
  /// format in which they are kept.
  OperationId quantise(OperationSink& sink, const Part& part, OperationId projected) const;
  /// Appends to `before` the operations that the feed-forward plan needs before `tag`.
  Ids with_weights(OperationSink& sink, const OpTag& tag, Ids before);

  PlannerInputs in_;
  std::vector<HeadRange> shards_;
  WeightPlacement weights_;
  RowQuantisation kv_;
  std::unique_ptr<FeedForwardPlan> feed_forward_;  ///< null: finish_layer
  StepScheduler scheduler_;
  ScheduledStep step_;  ///< the step that is being emitted
  /// State of one GPU.
  struct GpuState {
    Ids weights_copied;     ///< copies of the weights of the layer that is being emitted
    Ids kv_weights_copied;  ///< copies of W_K and W_V among them, if these come first
    Ids weights_freed;      ///< operations in order, each of which frees a buffer of weights
    Ids weight_users;       ///< ends of the layer's earlier mini-batches, which use the copied weights
    std::optional<OperationId> latest_layer;  ///< the finish_layer that was emitted last
  };
  std::vector<GpuState> gpus_;
  std::vector<std::optional<OperationId>> sampled_;  ///< [mini_batch] its latest sample
};

}  // namespace csdsim::host
