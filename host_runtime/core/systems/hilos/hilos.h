// HILOS: attention near storage, with activations on the host for a share of the tokens (arXiv 2502.09921).
#pragma once

#include "host_runtime/core/systems/hybrid/divided_tokens.h"

namespace csdsim::host {

/// K and V are in up to 16 drives, which divide the tokens and attend to them. For a share of the tokens activations
/// are kept in host memory instead (X-cache), from which the GPU recomputes K and V meanwhile. New K and V stay in host
/// memory until a group of them is written to a drive (delayed write-back). It is the hybrid without tokens in GPU
/// memory and without copies of K and V.
class Hilos final : public CopyableSystem<Hilos>, public SearchedSystem {
 public:
  static constexpr std::string_view kKind = "hilos";
  static constexpr std::string_view kDoc =
      "HILOS: the drives attend, the GPU recomputes a share of the tokens from activations meanwhile.";
  static constexpr std::uint32_t kMostDrives = 16;  ///< HILOS: 4 to 16 SmartSSDs

  std::optional<Ratio> x_cache;
  DividedTokens tokens{Place::host()};

  void describe(ParamVisitor& v) override;
  void check(config::Problems& problems, const SystemContext& context) const override;
  void choose(const ModelShape& model, const BatchLengths& workload, const PlatformRates& rates) override {
    tokens.choose(model, workload, rates, given());
  }
  std::vector<std::string> unused_parameters() const override { return tokens.unused_parameters(); }
  SystemTraits traits() const override {
    return {.mini_batches = 1, .recomputes_kv = true, .kv_format = tokens.kv_format()};
  }
  SystemNeeds needs(const PlannerInputs& run) const override { return tokens.needs(run.model, run.workload, given()); }
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override { return tokens.plan(inputs, given()); }
  Remarks remarks(const ModelShape& model, std::uint32_t longest) const override;

 private:
  GivenShares given() const { return {x_cache, Ratio{0, 1}, Ratio{0, 1}, std::nullopt}; }
};

}  // namespace csdsim::host
