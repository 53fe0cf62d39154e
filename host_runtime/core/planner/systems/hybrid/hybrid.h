// Tokens divided among recomputation, GPU memory, host memory and attention in the drives.
#pragma once

#include "host_runtime/core/planner/systems/hybrid/divided_tokens.h"

namespace csdsim::host {

/// See HybridPlanner. Shares that are not given are solved from the rates of the platform (division.h).
class Hybrid final : public CopyableSystem<Hybrid> {
 public:
  static constexpr std::string_view kKind = "hybrid";
  static constexpr std::string_view kDoc =
      "Tokens divided: recomputed on the GPU, kept there, copied from the host, attended to in the drives.";

  GivenShares given;
  DividedTokens tokens{NewestAt::gpu};

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) override {
    tokens.choose(model, workload, rates, given);
  }
  std::vector<std::string> unused_parameters() const override;
  /// One: the parts of a layer run side by side anyway.
  std::uint32_t usual_mini_batches() const override { return 1; }
  SystemNeeds needs(const ModelShape& model, const BatchLengths& workload) const override {
    return tokens.needs(model, workload, given);
  }
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override { return tokens.plan(inputs, given); }
  RowQuantisation kv_format() const override { return tokens.kv_format(); }
  bool recomputes_kv() const override { return true; }
  std::string_view method() const override { return tokens.sparse() ? "sparf" : "dense"; }
  MethodSettings method_settings() const override {
    return tokens.sparse() ? sparf_settings(tokens.sparf()) : MethodSettings{};
  }
  std::vector<std::pair<std::string, std::string>> parameters_of(const MethodSettings& settings) const override {
    using Parameters = std::vector<std::pair<std::string, std::string>>;
    return tokens.sparse() ? sparf_parameters_of(settings) : Parameters{};
  }
  std::optional<SparseBudget> sparse_budget(const ModelShape& model, std::uint32_t context) const override {
    return tokens.sparse_budget(model, context);
  }
  std::vector<std::pair<std::string, std::string>> remarks(const ModelShape&, std::uint32_t) const override {
    return tokens.remarks();
  }
};

}  // namespace csdsim::host
