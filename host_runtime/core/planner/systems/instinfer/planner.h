// InstInfer: prefill on the GPU, decode attention in the drives that hold the KV cache.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/planner/layer_planner.h"
#include "host_runtime/core/planner/sparf_budget.h"

namespace csdsim::host {

/// The system of "InstInfer: In-Storage Attention Offloading for Cost-Effective Long-Context LLM Inference"
/// (sections IV-B, IV-D). Weights and activations stay on the GPU, the KV cache is in the drives.
///
/// Prefill: the GPU computes a layer while K and V of the previous layer are transferred to the drives. The GPU holds K
/// and V of at most `kv_buffers` layers: layer i starts after the drives have accepted those of layer i - kv_buffers.
/// Decode: for each layer the GPU computes q, k, v; every drive appends k and v and attends for its heads (n_head / n
/// each); the GPU concatenates the outputs and finishes the layer. Mini-batches do not depend on each other, so the GPU
/// computes one while the drives attend for another. With PlannerInputs::through_host, all data between the GPU and a
/// drive is also copied over the GPU's link, in separate operations. Drives free a sequence when its last token has
/// been sampled. Of requests that arrive, they create the sequences before the prefill.
class InstInfer final : public LayerPlanner {
 public:
  /// Without `sparf`, attention is dense. Throws UserError for inconsistent sizes (heads and drives, mini-batches and
  /// batch) and for no buffers.
  InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, const std::optional<SparfParameters>& sparf = {});

 private:
  Ids room_for(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;
  void step_emitted() override { kept_.clear(); }
  void admit(OperationSink& sink, const OpTag& tag, const std::vector<SequenceId>& sequences) override;
  void sequences_end(OperationSink& sink, const Part& part, OperationId sampled) override;

  /// Operations of a drive on the mini-batch's cache of a layer that the next one has to wait for.
  Ids& kept(std::uint32_t mini_batch, std::uint32_t layer, std::uint32_t drive);

  /// Emits the transfer of tensors through host memory, after `deps`. Peer to peer it returns `deps`.
  Ids staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
             const std::vector<SizedTensor>& tensors) const;
  /// The memory of the buffers of drive commands.
  BufferMemory buffer_memory() const { return inputs().through_host ? BufferMemory::host : BufferMemory::gpu; }
  Place buffers() const { return inputs().through_host ? Place::host() : Place::gpu(); }

  DriveWork append_work(const Part& part, HeadRange heads) const;
  DriveWork attend_work(const Part& part, HeadRange heads) const;

  std::uint32_t kv_buffers_;
  DriveMethod method_;
  std::optional<SparfBudget> budget_;
  /// [mini_batch][layer][drive] append_kv of the latest prefill, or the free_kv that has emptied the cache; empty if no
  /// prefill has been since the last decode step
  std::vector<std::vector<std::vector<Ids>>> kept_;
  Ids created_;  ///< [drive] create_kv of the requests that are prefilled now
};

}  // namespace csdsim::host
