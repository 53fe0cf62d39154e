// Everything in GPU memory: what offloading is compared with, for batches that fit.
#pragma once

#include "host_runtime/core/planner/system.h"

namespace csdsim::host {

/// Weights, activations, K and V stay in GPU memory, and the GPU attends. The drives do nothing.
class GpuOnly final : public DenseSystem<GpuOnly> {
 public:
  static constexpr std::string_view kKind = "gpu-only";
  static constexpr std::string_view kDoc = "Nothing is offloaded: weights, K and V have to fit into GPU memory.";

  void describe(ParamVisitor&) override {}
  void check(config::Problems&, const SystemContext&) const override {}
  /// One: each mini-batch would read all weights again.
  std::uint32_t usual_mini_batches() const override { return 1; }
  bool ends_sequences() const override { return true; }
  bool serves_arrivals() const override { return true; }
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

}  // namespace csdsim::host
