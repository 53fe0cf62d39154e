// Shared by the tests of scenarios: loading with the kinds that csdsim comes with, and a look into open choices.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/config/dump.h"
#include "experiment/experiments.h"
#include "experiment/generation/generation_workload.h"
#include "host_runtime/core/systems/instinfer/instinfer.h"
#include "scenario/catalog.h"
#include "scenario/scenario.h"

namespace csdsim::test {

using experiment::GenerationWorkload;
using experiment::load_scenario;
using experiment::load_scenario_text;
using host::InstinferDense;
using host::InstinferSparf;

inline scenario::Scenario empty_scenario() { return scenario::Scenario(experiment::builtin_registries()); }

inline config::ParamTable table_of_scenario() { return config::ParamTable::of(empty_scenario()); }

/// The system or workload of a scenario as what it is; std::bad_cast if it is of another kind.
template <class T>
const T& system_as(const scenario::Scenario& s) {
  return dynamic_cast<const T&>(*s.system);
}
template <class T>
const T& workload_as(const scenario::Scenario& s) {
  return dynamic_cast<const T&>(*s.workload);
}

inline std::vector<scenario::CatalogItem> catalog(std::string_view category) {
  return scenario::catalog(category, experiment::builtin_registries());
}
inline std::string list_text(std::string_view category = {}) {
  return scenario::list_text(scenario::listed(category, experiment::builtin_registries()));
}
inline std::vector<std::string> describe_kinds() { return scenario::describe_kinds(experiment::builtin_registries()); }
inline std::string describe_text(std::string_view kind, std::string_view name = {}) {
  return scenario::describe_text(kind, name, experiment::builtin_registries());
}
inline std::string describe_markdown() { return scenario::describe_markdown(experiment::builtin_registries()); }

}  // namespace csdsim::test
