// Runs a checked scenario and returns its result document.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario/experiment.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Version of the layout of result.json. Keys are added, but existing keys do not change their meaning.
inline constexpr int kResultSchema = 1;

/// Throws UserError for mistakes that only a run can detect (a drive that is too small, a broken checkpoint).
scenario::RunResult run_scenario(const scenario::Scenario& scenario, const scenario::RunOptions& options = {});

/// Version, compiler and build type, for the result document.
nlohmann::ordered_json build_info();

}  // namespace csdsim::experiment
