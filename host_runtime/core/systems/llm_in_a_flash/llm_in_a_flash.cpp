#include "host_runtime/core/systems/llm_in_a_flash/llm_in_a_flash.h"

#include "host_runtime/core/features/drafts/drafts.h"
#include "host_runtime/core/features/neurons/flash_feed_forward.h"
#include "host_runtime/core/features/neurons/neurons.h"
#include "host_runtime/core/plan/tiered_kv_planner.h"

namespace csdsim::host {

SystemNeeds LlmInAFlash::needs(const PlannerInputs& run) const {
  SystemNeeds needs{.kv = Place::gpu()};
  if (run.model.layers == 0) return needs;
  PlannerInputs on_one_drive = run;  // residents are those of all drives together
  on_one_drive.drives = 1;
  needs.residents = flash_residents(flash_weights(on_one_drive), run, run.through_host);
  needs.residents.push_back(
      {Place::gpu(), "K and V", run.model.kv_bytes_per_token() * run.workload.longest_contexts()});
  return needs;
}

RunFeatures LlmInAFlash::features(const PlannerInputs& inputs) const {
  RunFeatures features;
  features.add(std::make_unique<Neurons>(flash_weights(inputs), inputs.workload.speculation));
  if (const std::uint32_t most = inputs.workload.speculation.draft_tokens; most > 0)
    features.add(std::make_unique<Drafts>(most));
  return features;
}

FlashWeights LlmInAFlash::flash_weights(const PlannerInputs& inputs) const {
  return FlashWeights(flash.options(inputs.carried), inputs);
}

std::unique_ptr<Planner> LlmInAFlash::plan(const PlannerInputs& inputs) const {
  auto planner =
      std::make_unique<TieredKvPlanner>(inputs, TieredKv{.shards = tier_heads(inputs.model.kv_heads, {1, 1}, {0, 1})});
  planner->set_feed_forward(std::make_unique<FlashFeedForward>(flash_weights(inputs), inputs));
  return planner;
}

}  // namespace csdsim::host
