// Tokens divided among recomputation, GPU memory, host memory and attention in the drives.
#pragma once

#include "host_runtime/core/systems/hybrid/divided_tokens.h"

namespace csdsim::host {

/// See HybridPlanner. Shares that are not given are solved from the rates of the platform (division.h).
class Hybrid final : public CopyableSystem<Hybrid>, public SearchedSystem {
 public:
  static constexpr std::string_view kKind = "hybrid";
  static constexpr std::string_view kDoc =
      "Tokens divided: recomputed on the GPU, kept there, copied from the host, attended to in the drives.";

  GivenShares given;
  DividedTokens tokens{Place::gpu()};

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) override {
    tokens.choose(model, workload, rates, given);
  }
  std::vector<std::string> unused_parameters() const override;
  /// One: the parts of a layer run side by side anyway.
  SystemTraits traits() const override {
    return {.mini_batches = 1,
            .recomputes_kv = true,
            .kv_format = tokens.kv_format(),
            .method = tokens.sparse() ? sparf_method("sparf", tokens.sparf()) : SystemMethod{}};
  }
  SystemNeeds needs(const PlannerInputs& run) const override { return tokens.needs(run.model, run.workload, given); }
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override { return tokens.plan(inputs, given); }
  Remarks remarks(const ModelShape&, std::uint32_t) const override { return tokens.remarks(); }
};

}  // namespace csdsim::host
