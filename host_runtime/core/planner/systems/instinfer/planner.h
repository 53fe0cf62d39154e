// InstInfer: prefill on the GPU, decode attention in the drives that hold the KV cache.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/planner/planner.h"
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
/// drive is also copied over the GPU's link, in separate operations.
class InstInfer final : public Planner {
 public:
  /// Without `sparf`, attention is dense. Throws UserError for inconsistent sizes (heads and drives, mini-batches and
  /// batch, span and workload) and for no buffers.
  InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, const std::optional<SparfParameters>& sparf = {});

  std::vector<PlacedTensor> resident() const override;
  bool next_step(OperationSink& sink) override;

 private:
  using Ids = std::vector<OperationId>;

  void prefill(OperationSink& sink);
  void decode(OperationSink& sink, std::uint32_t step);
  /// Emits the transfer of tensors through host memory, after `deps`. Peer to peer it returns `deps`.
  Ids staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
             const std::vector<SizedTensor>& tensors) const;
  /// The memory of the buffers of drive commands.
  BufferMemory buffer_memory() const { return in_.through_host ? BufferMemory::host : BufferMemory::gpu; }
  Place buffers() const { return in_.through_host ? Place::host() : Place::gpu(); }

  SizedTensor hidden_states(OpTag tag, std::uint64_t tokens) const;
  SizedTensor attention_output(const OpTag& tag, HeadRange heads, std::uint64_t tokens) const;
  /// K and V of a mini-batch in a drive after `work`.
  SizedTensor cache(const OpTag& tag, HeadRange heads, const DriveWork& work) const;
  /// Tensors of attention_inputs. It makes k and v for each drive, and q, which in decode is also split by drive.
  TensorUses projections(const OpTag& tag, std::uint64_t tokens) const;
  TensorUses layer_end(const OpTag& tag, std::uint64_t tokens, std::vector<TensorName> outputs) const;
  TensorUses last_use(const OpTag& tag) const;
  DriveWork append_work(Share batch, HeadRange heads) const;
  DriveWork attend_work(Share batch, HeadRange heads, std::uint32_t step) const;

  PlannerInputs in_;
  std::uint32_t kv_buffers_;
  DriveMethod method_;
  std::optional<SparfBudget> budget_;
  std::vector<Share> mini_batches_;  ///< sequences of each mini-batch
  std::vector<HeadRange> shards_;    ///< KV heads of each drive
  bool prefill_done_ = false;
  std::uint32_t decoded_ = 0;
  Ids sampled_;                         ///< [mini_batch] sample operation of the previous step; empty before the first
  std::vector<std::vector<Ids>> kept_;  ///< [mini_batch][layer] append_kv of every drive; empty without a prefill
};

}  // namespace csdsim::host
