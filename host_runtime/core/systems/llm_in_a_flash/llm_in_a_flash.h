// Weights in flash: LLM in a flash (arXiv 2312.11514).
#pragma once

#include "host_runtime/core/systems/flash_parameters.h"

namespace csdsim::host {

/// The model is larger than the memory of the processor, which platform.gpu describes: feed-forward networks are in the
/// block namespaces of the drives, one record per neuron, and each step reads what it needs. Attention, embeddings, K
/// and V stay in memory.
class LlmInAFlash final : public CopyableSystem<LlmInAFlash> {
 public:
  static constexpr std::string_view kKind = "llm-in-a-flash";
  static constexpr std::string_view kDoc =
      "Weights in flash: each step reads the neurons that are predicted to be active and not in memory.";

  FlashParameters flash;

  void describe(ParamVisitor& v) override { describe_flash(v, flash); }
  void check(config::Problems& problems, const SystemContext& context) const override {
    check_flash(problems, context, flash);
  }
  std::vector<std::string> unused_parameters() const override { return unused_flash_parameters(flash); }
  /// One: a layer has one window of neurons, which the whole batch shares.
  SystemTraits traits() const override { return {.mini_batches = 1, .verifies_drafts = true}; }
  SystemNeeds needs(const PlannerInputs& run) const override;
  std::unique_ptr<Planner> plan(const PlannerInputs& inputs) const override;
  RunFeatures features(const PlannerInputs& inputs) const override;
  FlashWeights flash_weights(const PlannerInputs& inputs) const;
};

}  // namespace csdsim::host
