// FlexGen with SparQ attention and K and V on the SSD: a baseline of InstInfer (arXiv 2409.04992, section VI-A).
#pragma once

#include "host_runtime/core/systems/flexgen_sparq/planner.h"
#include "host_runtime/core/systems/sparf_parameters.h"
#include "host_runtime/core/systems/weight_parameters.h"

namespace csdsim::host {

/// SparQ (arXiv 2312.04985) in FlexGen: all K and V are in files, K by token and by component, 1.5 times their size.
class FlexGenSparq final : public CopyableSystem<FlexGenSparq> {
 public:
  static constexpr std::string_view kKind = "flexgen-sparq";
  static constexpr std::string_view kDoc =
      "FlexGen with SparQ attention: K and V in files, of which the GPU gets some components of K and the best tokens.";

  SparqFiles sparq{.stores_attention_weights = true};
  WeightPlacement weights;

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  std::vector<std::string> unused_parameters() const override;
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  RunFeatures features(const PlannerInputs&) const override;
  SystemTraits traits() const override { return {.method = sparf_method("sparq", sparq.budget)}; }
};

}  // namespace csdsim::host
