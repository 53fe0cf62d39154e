// The experiment ftl_policies: compares mapping policies of the KV cache.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/param.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

/// Runs the same sequences under each mapping policy: they are created, grow token by token, are attended and are
/// freed. The mapping of the drive is one of the policies.
struct PolicyWorkload final : scenario::CopyableExperiment<PolicyWorkload> {
  static constexpr std::string_view kKind = "ftl_policies";
  static constexpr std::string_view kDoc =
      "Compares mapping policies: the same sequences are created, grow, are attended and are freed.";
  std::uint32_t layers = 2;
  std::uint32_t kv_heads = 16;
  std::uint32_t head_dim = 128;
  std::uint32_t sequences = 24;
  std::uint32_t live = 6;
  std::uint32_t least_tokens = 512;
  std::uint32_t most_tokens = 2048;
  Ratio prompt_fraction = Ratio::of(1, 2);
  std::uint32_t attend_every = 128;
  Ratio ratio = Ratio::of(1, 8);

  void describe(ParamVisitor& v) override;
  void check(scenario::Checker& c) override;
  void prune(nlohmann::ordered_json& config, const scenario::Scenario& scenario) const override;
  std::vector<MetricInfo> metrics(const scenario::Registries&) const override;
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;
};

}  // namespace csdsim::experiment
