// The experiment ftl_policies: mapping policies of the KV cache, one beside the other.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/param.h"
#include "scenario/experiment.h"

namespace csdsim::experiment {

/// Sequences come, grow token by token, are attended and go, under each mapping policy in turn. The drive's own mapping
/// is one of them.
struct PolicyWorkload final : scenario::CopyableExperiment<PolicyWorkload> {
  static constexpr std::string_view kKind = "ftl_policies";
  static constexpr std::string_view kDoc =
      "Mapping policies one beside the other: sequences come, grow, are attended and go.";
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
  scenario::RunResult run(const scenario::Scenario& scenario, const scenario::RunOptions& options) const override;
};

}  // namespace csdsim::experiment
