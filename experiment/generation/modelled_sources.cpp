#include "experiment/generation/modelled_sources.h"

#include <fmt/format.h>

#include <filesystem>

#include "base/error.h"
#include "experiment/evaluation/recorded_neurons.h"
#include "experiment/evaluation/recorded_selection.h"
#include "experiment/evaluation/recorded_tokens.h"
#include "host_runtime/core/features/token_pools/model/token_locality.h"

namespace csdsim::experiment {

std::unique_ptr<engine::SelectionSource> make_selection(const scenario::Scenario& s, const GenerationSetup& setup) {
  if (const auto* recorded = std::get_if<scenario::RecordedSelectionConfig>(&s.simulation.selection);
      recorded && s.simulation.data == ftl::DataMode::timing) {
    auto selection = std::make_unique<engine::RecordedSelection>(read_selection(recorded->file.path));
    const host::ModelShape& model = setup.plan.model;
    const host::BatchLengths& work = setup.plan.workload;
    for (std::size_t i = 0; i < work.size(); ++i)
      for (const std::uint32_t context : {work.requests[i].prompt + 1, work.length_of(i)})
        if (const auto budget = setup.system->traits().method.sparse_budget(model, context))
          selection->check(context, model.head_dim, {.r = budget->components, .k = budget->tokens, .l = budget->local});
    return selection;
  }
  const auto* clustered = std::get_if<scenario::ClusteredSelectionConfig>(&s.simulation.selection);
  return clustered_selection(clustered ? *clustered : scenario::ClusteredSelectionConfig{}, s.seed);
}

std::unique_ptr<engine::SelectionSource> clustered_selection(const scenario::ClusteredSelectionConfig& clustered,
                                                             std::uint64_t seed) {
  return std::make_unique<engine::ClusteredSelection>(
      clustered.selected_per_page
          ? engine::ClusteredSelection::with_selected_per_page(clustered.selected_per_page->value(), seed)
          : engine::ClusteredSelection(clustered.token_page_fraction.value(), seed));
}

std::function<std::unique_ptr<host::TokenImportance>()> important_tokens(const scenario::Scenario& s) {
  if (const auto* const recorded = std::get_if<scenario::RecordedTokensConfig>(&s.simulation.tokens)) {
    const host::RecordedTokens replay(read_tokens(recorded->file.path).recording);
    return [replay] { return std::make_unique<host::RecordedTokens>(replay); };
  }
  const auto& modelled = std::get<scenario::ModelledTokensConfig>(s.simulation.tokens);
  const host::TokenLocalityParams params{.recent = modelled.recent.value(),
                                         .concentration = modelled.concentration.value(),
                                         .persistence = modelled.persistence.value(),
                                         .drift = modelled.drift.value()};
  return [params, seed = s.seed] { return std::make_unique<host::TokenLocalityModel>(params, seed); };
}

std::function<std::unique_ptr<host::NeuronActivity>()> recorded_neurons(const scenario::Scenario& s) {
  const std::filesystem::path& file = s.simulation.neurons.value().path;
  const host::NeuronRecording recording = read_neurons(file);
  if (recording.neurons != s.model.shape().ffn)
    throw UserError(fmt::format("simulation.neurons: {} has {} neurons per layer, the model {}", file.string(),
                                recording.neurons, s.model.shape().ffn));
  return [recording] { return std::make_unique<host::RecordedActivity>(recording); };
}

}  // namespace csdsim::experiment
