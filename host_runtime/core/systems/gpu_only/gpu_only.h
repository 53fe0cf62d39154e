// Everything in GPU memory: what offloading is compared with, for batches that fit.
#pragma once

#include "host_runtime/core/plan/system.h"

namespace csdsim::host {

/// Weights, activations, K and V stay in GPU memory, and the GPU attends. The drives do nothing.
class GpuOnly final : public CopyableSystem<GpuOnly> {
 public:
  static constexpr std::string_view kKind = "gpu-only";
  static constexpr std::string_view kDoc = "Nothing is offloaded: weights, K and V have to fit into GPU memory.";

  void describe(ParamVisitor&) override {}
  void check(config::Problems&, const SystemContext&) const override {}
  /// One: each mini-batch would read all weights again.
  SystemTraits traits() const override { return {.mini_batches = 1, .ends_sequences = true, .serves_arrivals = true}; }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
};

}  // namespace csdsim::host
