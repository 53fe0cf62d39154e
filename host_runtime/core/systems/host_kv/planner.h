// The plan of HostKv with attention on the host.
#pragma once

#include <vector>

#include "host_runtime/core/plan/layer_planner.h"

namespace csdsim::host {

/// Prefill: K and V of a layer travel to host memory while the GPU computes the next one; the GPU holds those of at
/// most `kv_buffers` layers. Decode: q, k and v travel to the host, which attends, and outputs travel back.
class HostAttentionPlanner final : public LayerPlanner {
 public:
  /// Throws UserError for inconsistent sizes and for no buffers.
  HostAttentionPlanner(const PlannerInputs& inputs, std::uint32_t kv_buffers, const WeightPlacement& weights,
                       const RowQuantisation& kv = {});
  std::vector<PlacedTensor> resident() const override;

 private:
  Ids room_for(const Part& part) const override;
  void keep(OperationSink& sink, const Part& part, OperationId projected) override;
  Outputs attend(OperationSink& sink, const Part& part, OperationId projected) override;
  void release(OperationSink& sink, const Part& part) override;

  std::uint32_t kv_buffers_;
  /// [mini_batch][layer] the operation after which K and V are complete in host memory; none before a span's first step
  std::vector<std::vector<Ids>> stored_;
};

}  // namespace csdsim::host
