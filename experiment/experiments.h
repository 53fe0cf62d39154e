// The built-in experiments and offload systems, and loading of scenarios that use them.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "scenario/load_point.h"
#include "scenario/metrics.h"
#include "scenario/registries.h"

namespace csdsim::experiment {

/// The built-in experiments in the order of `csdsim list`; the first is the default of a scenario.
scenario::ExperimentKinds builtin_experiments();

/// The built-in systems and experiments; always the same object.
const std::shared_ptr<const scenario::Registries>& builtin_registries();

/// builtin_registries() plus the kinds of plugins (scenario/plugin.h). Throws UserError for a file that is not a
/// plugin.
std::shared_ptr<const scenario::Registries> registries_with(const std::vector<std::filesystem::path>& plugins);

/// The metrics of all workloads and of csdsim eval.
scenario::DescribedMetrics all_metrics(const scenario::Registries& registries);

/// scenario::load_scenario() with builtin_registries(). NAME.fio is a job file of fio (fio/fio_job.h), whose drive is
/// in `sets`.
scenario::Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets = {},
                               bool attention_on_host = false);
/// scenario::load_point() for the same files.
scenario::LoadedPoint load_point(const std::filesystem::path& file, const std::vector<std::string>& sets,
                                 std::optional<std::size_t> point = {});
scenario::Loaded load_scenario_text(std::string_view text, const std::string& name,
                                    const std::filesystem::path& directory, const std::vector<std::string>& sets = {},
                                    bool attention_on_host = false);

}  // namespace csdsim::experiment
