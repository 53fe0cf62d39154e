// Converts a scenario of workload ftl_policies to the configuration of a policy study.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention_engine/core/selection.h"
#include "experiment/mapping_policies/policy_study.h"
#include "experiment/mapping_policies/policy_workload.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Throws UserError if the workload is of another kind.
const PolicyWorkload& policy_workload_of(const scenario::Scenario& scenario);

PolicyStudyConfig policy_study_config(const scenario::Scenario& scenario);

/// The selection source of the scenario: recorded on a checkpoint, or clustered.
std::unique_ptr<engine::SelectionSource> policy_selection(const scenario::Scenario& scenario);
/// Describes the selection source in words.
std::string policy_selection_text(const scenario::Scenario& scenario);

}  // namespace csdsim::experiment
