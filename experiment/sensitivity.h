// Gain of a run if one resource is faster: the causal answer beside the counted one.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "scenario/experiment.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// A change that makes a resource of a scenario faster. `resources`: its names in breakdown.*.resources, more than one
/// where one parameter stands for several, such as both directions of a link.
struct SpeedUp {
  std::vector<std::string> resources;
  double factor = 1;  ///< times as fast; what can only grow by whole units grows by more than 1.1
  std::function<void(scenario::Scenario&)> apply;
};

/// One for each resource that the scenario has a speed of, but files, which only a run shows to be used. Measured times
/// of a GPU cannot be made faster.
std::vector<SpeedUp> speed_ups(const scenario::Scenario& scenario);

/// Runs the scenario, and again with each resource faster. The result is that of the first run, with a table
/// "sensitivity": resource, share of the critical path that is counted as its time (where the run has one), and the
/// gain of the rate (generated tokens per second in decoding or altogether, or I/Os per second) that 10 % more speed
/// brings. UserError for a workload without such a rate.
scenario::RunResult run_with_sensitivity(const scenario::Scenario& scenario, const scenario::RunOptions& options = {});

}  // namespace csdsim::experiment
