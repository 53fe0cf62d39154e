// Hugging Face Transformers with an offloaded KV cache (Accelerate).
#pragma once

#include "base/units.h"
#include "host_runtime/core/plan/software.h"
#include "host_runtime/core/plan/streamed_system.h"
#include "host_runtime/core/systems/kv_parameters.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// K and V are in host memory; while the GPU computes a layer, those of the next layer are copied to it, and new ones
/// are copied back (OffloadedCache). Weights stay on the GPU, or are offloaded to the host and copied layer by layer.
class HfAccelerate final : public CopyableSystem<HfAccelerate>, public StreamedSystem {
 public:
  static constexpr std::string_view kKind = "hf-accelerate";
  static constexpr std::string_view kDoc =
      "Hugging Face Accelerate: K and V in host memory, copied to the GPU layer by layer, one layer ahead.";

  std::uint32_t kv_buffers = 2;
  KvFormat kv;
  WeightPlacement weights;
  Software software;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  SystemTraits traits() const override {
    return {.mini_batches = 1, .ends_sequences = true, .serves_arrivals = true, .kv_format = kv.rows()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  bool needs_rates(const ModelShape&) const override { return false; }
  OffloadPlan stream_plan(const ModelShape& model, const std::optional<StreamRates>& rates) const override;
};

}  // namespace csdsim::host
