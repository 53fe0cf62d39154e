// The plan of the systems that divide the tokens of a sequence among GPU, link and drives: Hybrid and Hilos.
#pragma once

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/sparf_budget.h"
#include "host_runtime/core/systems/hybrid/activation_blocks.h"

namespace csdsim::host {

struct HybridPlan {
  TokenShares shares = {};
  Place newest = Place::gpu();        ///< K and V of the newest tokens wait here until they are a group: GPU or host
  Place activations = Place::host();  ///< place of the activations of recomputed tokens: host or drive_blocks
  bool projects_first = false;        ///< the GPU recomputes K and V of a layer when it has projected, not before
  std::uint32_t kv_buffers = 2;       ///< layers whose K and V the GPU holds per mini-batch
  std::optional<SparfParameters> sparf = {};  ///< budget of the drives; unset: dense attention
  RowQuantisation kv = {};                    ///< format of K and V in all places; recomputed ones are not quantised
};

/// A sequence consists of tokens whose activations are in host memory or in the drives' block namespaces, tokens whose
/// K and V are in GPU memory, in host memory and in the drives, in this order of a prompt (TokenPart), and of its
/// newest tokens.
///
/// Prefill: K and V of a layer, and activations, go to where they belong while the GPU computes the next layer.
///
/// Decode, for each layer and mini-batch, side by side: the drives attend to their tokens; activations are copied to
/// the GPU, which recomputes K and V; K and V in host memory are copied. The GPU attends to all tokens that the drives
/// have not got, and merges its partial output with theirs by the log-sum-exp. Copies and recomputation run up to
/// `kv_buffers` layers ahead. After every `group` steps, the newest tokens go to one part: what leaves the GPU does so
/// in the background, and the next attention of the layer in that part waits for it.
class HybridPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes, shares and groups, for no buffers and for requests that arrive.
  HybridPlanner(const PlannerInputs& inputs, const HybridPlan& plan, const WeightPlacement& weights = {});
  std::vector<PlacedTensor> resident() const override;
  std::vector<PlannedBlocks> blocks() const override;
  std::uint32_t layers_ahead() const override { return std::max(plan_.kv_buffers, LayerPlanner::layers_ahead()); }

 private:
  Ids room_for(const Part& part) const override;
  std::vector<SizedTensor> kept_inputs(const Part& part) const override;
  std::vector<SizedTensor> new_kv_parts(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;

  /// The operations that those of a mini-batch on a layer wait for.
  struct Layer {
    Ids activations, kept, copied, newest;  ///< operations after which the tokens of each part are where they belong
    std::vector<Ids> drives;                ///< the same of each drive
  };
  /// The attention of a layer, after which its buffer on the GPU is free.
  struct Attended {
    OperationId on_gpu;
    Ids in_drives;
  };
  /// The tokens that the GPU attends to in a step, as they are emitted.
  struct OnGpu {
    Ids ready;
    TensorUses uses;
    std::uint64_t tokens = 0;
    std::uint64_t recomputed = 0;  ///< tokens among them whose K and V have 16 bits in any case
  };

  HeadRange heads() const { return shards().front(); }
  Layer& state(const Part& part) { return layers_[part.mini_batch()][part.layer()]; }
  Bytes activations_of(std::uint64_t tokens) const {
    return {std::uint64_t{model().width} * model().element_bytes * tokens};
  }
  Place newest_place(const Part& part) const {
    return plan_.newest == Place::gpu() ? gpu_memory(part.tag) : Place::host();
  }
  /// True if tokens between drives and `place` pass through host memory.
  bool staged(Place place) const { return inputs().through_host && place.kind == PlaceKind::gpu; }
  Place buffers(const Part& part) const { return inputs().through_host ? Place::host() : gpu_memory(part.tag); }
  static Place memory_of(Place place) {
    return place.kind == PlaceKind::host ? Place::host() : Place::gpu(place.index);
  }

  std::uint32_t prompt_of(const StepSequence& s) const { return inputs().workload.prompt_of(s.sequence); }
  /// Tokens of the mini-batch in a part, or in a drive, after `steps` decode steps.
  std::uint64_t tokens_in(const Part& part, TokenPart of, std::uint32_t steps) const;
  std::uint64_t tokens_in(const Part& part, DriveIndex drive, std::uint32_t steps) const;

  SizedTensor kept_tensor(const Part& part, std::uint32_t number, std::uint64_t tokens) const;
  SizedTensor step_tensor(const Part& part, std::uint32_t number, std::uint64_t tokens) const;
  SizedTensor activations(const Part& part, std::uint32_t number, std::uint64_t tokens) const;
  /// The newest tokens of the group of a step, of which there are `of_sequence` of each sequence.
  SizedTensor newest(const Part& part, std::uint32_t of_sequence) const;
  SizedTensor newest_activations(const Part& part, std::uint32_t of_sequence) const;
  /// K and V of a prompt that leave the GPU, or stay there, together.
  SizedTensor piece(const Part& part, std::uint32_t number) const;

  /// A copy over the GPU's link of the first tokens of `from`, `of_sequence` each, under the name `to`.
  OperationId copy(OperationSink& sink, ResourceKind link, const Part& part, LinkPayload payload,
                   const TensorName& from, const SizedTensor& to, const std::vector<std::uint32_t>& of_sequence,
                   Ids before, std::vector<TensorAt> drops) const;
  /// Tokens of each sequence in a part after `steps` decode steps.
  std::vector<std::uint32_t> each(const Part& part, TokenPart of, std::uint32_t steps) const;
  /// The prompts' activations, which `projected` has read, go to host memory or to the drives.
  void keep_activations(OperationSink& sink, const Part& part, OperationId projected);
  /// Nothing for the first layers, whose buffers are free.
  const Attended* freed_by(const Part& part) const;
  void recompute(OperationSink& sink, const Part& part, OperationId projected, const Ids& room, OnGpu& on_gpu);
  /// Activations come to the GPU after `before`. Returns what the recomputation has to wait for.
  Ids load_activations(OperationSink& sink, const Part& part, const Ids& before, TensorUses& recomputation);
  BlockWork block_work(const Part& part, Extent extent) const;
  SizedTensor activations_on(const Part& part, DriveIndex drive, std::uint32_t steps) const;
  void copy_tokens(OperationSink& sink, const Part& part, const Ids& room, OnGpu& on_gpu);
  void join_newest(OperationSink& sink, const Part& part, const Ids& room, OnGpu& on_gpu);
  /// Adds the attention of the drives. `ready` gets the operations that the merge waits for, `merge` the tensors that
  /// it reads. Returns the operations of the drives.
  Ids attend_in_drives(OperationSink& sink, const Part& part, OperationId projected, Ids& ready, TensorUses& merge);
  /// The newest tokens of a step that ends a group go to their part.
  void write_back(OperationSink& sink, const Part& part, OperationId attention);
  void write_back_to_drive(OperationSink& sink, const Part& part, DriveIndex drive, Ids before);
  void append_to(OperationSink& sink, const Part& part, TokenPart target, Ids before);
  void append_activations(OperationSink& sink, const Part& part, Ids before);
  DriveWork append_work(const Part& part, DriveIndex drive, std::uint32_t steps, Place memory) const;
  DriveWork attend_work(const Part& part, DriveIndex drive) const;

  HybridPlan plan_;
  std::optional<SparfBudget> budget_;
  KvDivision division_;
  std::optional<ActivationBlocks> on_drives_;    ///< unset: activations are in host memory
  std::vector<std::vector<Layer>> layers_;       ///< [mini_batch][layer]
  std::vector<std::vector<Attended>> attended_;  ///< [mini_batch] the last `kv_buffers` layers, in order
};

}  // namespace csdsim::host
