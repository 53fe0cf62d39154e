// The experiments and offload systems that csdsim comes with, and scenarios that name them.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/load.h"
#include "scenario/registries.h"

namespace csdsim::experiment {

/// In the order in which they are listed to users; the first is the default of a scenario.
scenario::ExperimentKinds builtin_experiments();

/// All that csdsim comes with; the same object every time.
const std::shared_ptr<const scenario::Registries>& builtin_registries();

/// builtin_registries() and the kinds of plugins (scenario/plugin.h). UserError for what is no plugin.
std::shared_ptr<const scenario::Registries> registries_with(const std::vector<std::filesystem::path>& plugins);

/// scenario::load_scenario() with what csdsim comes with.
scenario::Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets = {});
scenario::Loaded load_scenario_text(std::string_view text, const std::string& name,
                                    const std::filesystem::path& directory, const std::vector<std::string>& sets = {});

}  // namespace csdsim::experiment
