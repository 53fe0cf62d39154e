// InstInfer: prefill on the GPU, decode attention in the drives that hold the KV cache.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/plan/kv_division.h"
#include "host_runtime/core/plan/layer_planner.h"
#include "host_runtime/core/plan/sparf_budget.h"

namespace csdsim::host {

/// The system of "InstInfer: In-Storage Attention Offloading for Cost-Effective Long-Context LLM Inference"
/// (sections IV-B, IV-D). Weights and activations stay on the GPU, the KV cache is in the drives.
///
/// Prefill: the GPU computes a layer while K and V of the previous layer are transferred to the drives. The GPU holds K
/// and V of at most `kv_buffers` layers: layer i starts after the drives have accepted those of layer i - kv_buffers.
/// Decode: for each layer the GPU computes q, k, v; every drive appends k and v and attends for its heads (n_head / n
/// each); the GPU concatenates the outputs and finishes the layer.
///
/// If the drives divide the tokens (KvDivision), q goes to every drive and k and v to one of them, which appends. Each
/// drive attends over its tokens of all heads, the GPU merges the partial outputs and finishes the layer. A drive
/// without a token of a sequence is not asked for it.
///
/// Mini-batches do not depend on each other, so the GPU computes one while the drives attend for another. With
/// PlannerInputs::through_host, all data between the GPU and a drive is also copied over the GPU's link, in separate
/// operations. Drives free a sequence when its last token has been sampled. Of requests that arrive, they create the
/// sequences before the prefill.
class InstInfer final : public LayerPlanner {
 public:
  /// Without `sparf`, attention is dense. Throws UserError for inconsistent sizes (heads and drives, mini-batches and
  /// batch), for no buffers, and for `sparf` where the drives divide the tokens.
  InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, ShardBy shard,
            const std::optional<SparfParameters>& sparf = {}, const RowQuantisation& kv = {});

 private:
  Ids room_for(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;
  std::vector<SizedTensor> new_kv_parts(const Part& part) const override;
  /// Forgets mini-batches that are not in the step, too: their appends have ended when the executor asks for a later
  /// prefill, because at most two steps are in progress (ExecutorConfig::window_steps).
  void step_emitted() override { kept_.clear(); }
  void admit(OperationSink& sink, const OpTag& tag, const std::vector<SequenceId>& sequences) override;
  void sequences_end(OperationSink& sink, const Part& part, OperationId sampled) override;

  /// Operations of a drive on the mini-batch's cache of a layer that the next one has to wait for.
  Ids& kept(std::uint32_t mini_batch, std::uint32_t layer, DriveIndex drive);

  /// Emits the transfer of tensors through host memory, after `deps`. Peer to peer it returns `deps`.
  Ids staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
             const std::vector<SizedTensor>& tensors) const;
  /// The memory of the buffers of drive commands.
  Place buffer_memory(const Part& part) const {
    return inputs().through_host ? Place::host() : Place::gpu(gpu_index(part.tag));
  }
  Place buffers(const Part& part) const { return inputs().through_host ? Place::host() : gpu_memory(part.tag); }

  /// Attention over each drive's tokens of all heads, and the merge.
  Outputs attend_and_merge(OperationSink& sink, const Part& part, OperationId projected);
  /// K and V that a drive gets in the step, and its cache after the step. No bytes where it gets or has none.
  SizedTensor new_kv_of(const Part& part, DriveIndex drive) const;
  SizedTensor cache_of(const Part& part, DriveIndex drive) const;
  /// The append_kv of a drive that an attend has to wait for, if any.
  void wait_for_prefill(const Part& part, DriveIndex drive, Ids& deps) const;

  std::uint32_t prompt_of(const StepSequence& sequence) const;
  DriveWork append_work(const Part& part, DriveIndex drive) const;
  DriveWork attend_work(const Part& part, DriveIndex drive) const;

  KvDivision division_;
  std::uint32_t kv_buffers_;
  Method method_;
  std::optional<SparfBudget> budget_;
  /// [mini_batch][layer][drive] append_kv of the latest prefill, or the free_kv that has emptied the cache; empty if no
  /// prefill has been since the last decode step
  std::vector<std::vector<std::vector<Ids>>> kept_;
  Ids created_;  ///< [drive] create_kv of the requests that are prefilled now
};

}  // namespace csdsim::host
