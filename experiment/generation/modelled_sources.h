// Models and recordings that replace data in timing runs: the pages that sparse attention touches, the tokens that
// matter, and the neurons that are active.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "attention_engine/core/selection.h"
#include "experiment/generation/generation_setup.h"
#include "host_runtime/core/plan/neuron_activity.h"
#include "host_runtime/core/plan/token_importance.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Which pages sparse attention touches where that is not computed. Checks that a recording is of the run's budget.
std::unique_ptr<engine::SelectionSource> make_selection(const scenario::Scenario& s, const GenerationSetup& setup);

/// The source of a clustered selection.
std::unique_ptr<engine::SelectionSource> clustered_selection(const scenario::ClusteredSelectionConfig& clustered,
                                                             std::uint64_t seed);

/// Makes models or replays of the tokens that matter. UserError for a recording that cannot be replayed.
std::function<std::unique_ptr<host::TokenImportance>()> important_tokens(const scenario::Scenario& s);

/// Makes replays of the recorded neurons of the scenario. UserError for a recording of another width.
std::function<std::unique_ptr<host::NeuronActivity>()> recorded_neurons(const scenario::Scenario& s);

}  // namespace csdsim::experiment
