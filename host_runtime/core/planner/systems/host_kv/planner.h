// The plan of HostKv.
#pragma once

#include <vector>

#include "host_runtime/core/planner/layer_planner.h"
#include "host_runtime/core/planner/systems/host_kv/host_kv.h"

namespace csdsim::host {

/// Prefill: K and V of a layer travel to host memory while the GPU computes the next one; the GPU holds those of at
/// most `kv_buffers` layers. Decode, attention at the GPU: K and V of a layer are copied to the GPU as soon as one of
/// the `kv_buffers` buffers of the mini-batch is free, so that copies run ahead of the computation; new k and v travel
/// back. Decode, attention at the host: q, k and v travel to the host, and outputs back.
class HostKvPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes and for no buffers.
  HostKvPlanner(const PlannerInputs& inputs, AttentionAt attention, std::uint32_t kv_buffers);
  std::vector<PlacedTensor> resident() const override;

 private:
  Ids room_for(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend_at_gpu(OperationSink& sink, const Part& part, OperationId projected);
  Outputs attend_at_host(OperationSink& sink, const Part& part, OperationId projected);
  /// New k and v travel to host memory and join the cache there.
  void store(OperationSink& sink, const Part& part, Ids after);

  AttentionAt attention_;
  std::uint32_t kv_buffers_;
  /// [mini_batch][layer] the operation after which K and V are complete in host memory; none before a span's first step
  std::vector<std::vector<Ids>> stored_;
  std::vector<Ids> freed_;  ///< [mini_batch] attention operations in order, each of which frees a buffer of the GPU
};

}  // namespace csdsim::host
