// DeepSpeed (ZeRO-Inference): weights, K and V in host memory, which the kernel swaps to a drive if it does not
// suffice.
#pragma once

#include "host_runtime/core/planner/systems/weight_parameters.h"

namespace csdsim::host {

/// ZeRO-Inference keeps weights in host memory and copies them to the GPU layer by layer; K and V of each layer follow
/// for its attention. Memory that does not fit is swapped (platform.host.swap).
class DeepSpeedHost final : public DenseSystem<DeepSpeedHost> {
 public:
  static constexpr std::string_view kKind = "deepspeed-host";
  static constexpr std::string_view kDoc =
      "DeepSpeed ZeRO-Inference: weights, K and V in host memory, swapped to a drive where they do not fit.";

  std::uint32_t kv_buffers = 2;
  WeightPlacement weights{.on_host = {1, 1}};
  bool rewrites_cache = true;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override { return unused_weight_parameters(weights); }
  /// One: copies of weights, K and V overlap with computation anyway.
  std::uint32_t usual_mini_batches() const override { return 1; }
  bool ends_sequences() const override { return true; }
  bool serves_arrivals() const override { return true; }
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

}  // namespace csdsim::host
