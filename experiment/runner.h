// Runs a checked scenario and makes its result document.
#pragma once

#include <nlohmann/json.hpp>

#include "scenario/experiment.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Version of the layout of result.json. It grows; nothing in it changes its meaning.
inline constexpr int kResultSchema = 1;

/// UserError for what only a run can find out (a drive that is too small, a broken checkpoint).
scenario::RunResult run_scenario(const scenario::Scenario& scenario, const scenario::RunOptions& options = {});

/// Version, compiler and build type, as results carry them.
nlohmann::ordered_json build_info();

}  // namespace csdsim::experiment
