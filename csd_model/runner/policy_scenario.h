// Studies of mapping policies out of a scenario of workload ftl_policies.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attention_engine/core/selection.h"
#include "csd_model/policies/policy_study.h"
#include "csd_model/scenario/scenario.h"

namespace csd_model {

PolicyStudyConfig policy_study_config(const csdsim::scenario::Scenario& scenario);

/// As the scenario says: recorded on a checkpoint, or clustered.
std::unique_ptr<csdsim::engine::SelectionSource> policy_selection(const csdsim::scenario::Scenario& scenario);
/// The same in words.
std::string policy_selection_text(const csdsim::scenario::Scenario& scenario);

}  // namespace csd_model
