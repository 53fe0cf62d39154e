// InstInfer: prefill on the GPU, decode attention in the storage that holds the KV cache.
#pragma once

#include <optional>
#include <vector>

#include "host_runtime/core/planner/planner.h"
#include "host_runtime/core/planner/sparf_budget.h"

namespace csdsim::host {

/// The system of "InstInfer: In-Storage Attention Offloading for Cost-Effective Long-Context LLM Inference"
/// (sections IV-B, IV-D). Weights and activations stay on the GPU, the KV cache lives in the drives.
///
/// Prefill: the GPU computes a layer while K and V of the layer before travel to the drives. The GPU holds K and V of
/// at most `kv_buffers` layers: computing layer i waits until those of layer i - kv_buffers have been accepted.
/// Decode: for each layer the GPU makes q, k, v; every drive appends k and v and attends for the heads it holds
/// (n_head / n each); the GPU concatenates the outputs and finishes the layer. Mini-batches share no dependency, so the
/// GPU works for one while the drives work for another. With PlannerInputs::through_host everything that the GPU and
/// a drive exchange is copied over the GPU's link as well, as an operation of its own.
class InstInfer final : public Planner {
 public:
  /// Dense attention without `sparf`. UserError for sizes that do not fit together (heads and drives, mini-batches and
  /// batch, span and workload) and for no buffers.
  InstInfer(const PlannerInputs& inputs, std::uint32_t kv_buffers, const std::optional<SparfParameters>& sparf = {});

  std::vector<PlacedTensor> resident() const override;
  bool next_step(OperationSink& sink) override;

 private:
  using Ids = std::vector<OperationId>;

  void prefill(OperationSink& sink);
  void decode(OperationSink& sink, std::uint32_t step);
  /// Tensors on their way through host memory, behind `deps`; nothing to do peer to peer: the dependencies themselves.
  Ids staged(OperationSink& sink, ResourceKind link, const OpTag& tag, LinkPayload payload, Ids deps,
             const std::vector<SizedTensor>& tensors) const;
  /// Where the buffers of drive commands lie.
  BufferMemory buffer_memory() const { return in_.through_host ? BufferMemory::host : BufferMemory::gpu; }
  Place buffers() const { return in_.through_host ? Place::host() : Place::gpu(); }

  SizedTensor hidden_states(OpTag tag, std::uint64_t tokens) const;
  SizedTensor attention_output(const OpTag& tag, HeadRange heads, std::uint64_t tokens) const;
  /// K and V of a mini-batch in a drive after `work`.
  SizedTensor cache(const OpTag& tag, HeadRange heads, const DriveWork& work) const;
  /// What attention_inputs reads and makes: k and v for each drive, and q, in decode for each drive as well.
  TensorUses projections(const OpTag& tag, std::uint64_t tokens) const;
  TensorUses layer_end(const OpTag& tag, std::uint64_t tokens, std::vector<TensorName> outputs) const;
  TensorUses last_use(const OpTag& tag) const;
  DriveWork append_work(Share batch, HeadRange heads) const;
  DriveWork attend_work(Share batch, HeadRange heads, std::uint32_t step) const;

  PlannerInputs in_;
  std::uint32_t kv_buffers_;
  DriveMethod method_;
  std::optional<SparfBudget> budget_;
  std::vector<Share> mini_batches_;  ///< sequences of each
  std::vector<HeadRange> shards_;    ///< KV heads of each drive
  bool prefill_done_ = false;
  std::uint32_t decoded_ = 0;
  Ids sampled_;                         ///< [mini_batch] the previous step's sample; empty before the first step
  std::vector<std::vector<Ids>> kept_;  ///< [mini_batch][layer] append_kv of every drive; empty without a prefill
};

}  // namespace csdsim::host
