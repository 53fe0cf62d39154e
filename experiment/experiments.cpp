#include "experiment/experiments.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/text_file.h"
#include "experiment/block_io/block_workload.h"
#include "experiment/evaluation/eval_run.h"
#include "experiment/fio/fio_job.h"
#include "experiment/generation/generation_workload.h"
#include "experiment/mapping_policies/policy_workload.h"
#include "experiment/objects/object_workload.h"
#include "experiment/serving/serving_workload.h"
#include "experiment/trace/trace_workload.h"
#include "host_runtime/core/systems/systems.h"
#include "scenario/plugin.h"

namespace csdsim::experiment {

scenario::ExperimentKinds builtin_experiments() {
  scenario::ExperimentKinds experiments("workload");
  experiments.add<GenerationWorkload>();
  experiments.add<BlockIoWorkload>();
  experiments.add<TraceWorkload>();
  experiments.add<ServingWorkload>();
  experiments.add<PolicyWorkload>();
  experiments.add<ObjectWorkload>();
  return experiments;
}

const std::shared_ptr<const scenario::Registries>& builtin_registries() {
  static const auto registries = std::make_shared<const scenario::Registries>(
      scenario::Registries{host::builtin_systems(), builtin_experiments()});
  return registries;
}

std::shared_ptr<const scenario::Registries> registries_with(const std::vector<std::filesystem::path>& plugins) {
  if (plugins.empty()) return builtin_registries();
  const auto registries = std::make_shared<scenario::Registries>(*builtin_registries());
  for (const auto& plugin : plugins) scenario::load_plugin(plugin, *registries);
  return registries;
}

scenario::DescribedMetrics all_metrics(const scenario::Registries& registries) {
  scenario::DescribedMetrics all = scenario::described_metrics(registries);
  scenario::describe_metrics(all, "eval", infos_of(evaluation_metrics()));
  return all;
}

namespace {

scenario::Loaded load_fio_jobs(const std::filesystem::path& file, const std::vector<std::string>& sets,
                               bool attention_on_host) {
  const FioScenario jobs = scenario_of_fio_jobs(read_text_file(file, Bytes::mib(1)), file.string());
  const auto names_drive = [](const std::string& set) {
    return set.starts_with("platform.device.preset=") || set.starts_with("platform.device=") ||
           set.starts_with("platform=");
  };
  if (std::ranges::none_of(sets, names_drive))
    throw UserError(
        fmt::format("{}: a job file of fio does not say what the drive is; add --set platform.device.preset=NAME "
                    "(csdsim list devices), or --set platform=FILE with a scenario file of your drive",
                    file.string()));
  const std::filesystem::path folder = file.parent_path();
  scenario::Loaded loaded = load_scenario_text(jobs.text, file.string() + " (as a scenario)",
                                               folder.empty() ? "." : folder, sets, attention_on_host);
  loaded.base.notes.insert(loaded.base.notes.begin(), jobs.notes.begin(), jobs.notes.end());
  return loaded;
}

}  // namespace

scenario::Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets,
                               bool attention_on_host) {
  if (file.extension() == kFioJobs) return load_fio_jobs(file, sets, attention_on_host);
  return scenario::load_scenario(file, sets, builtin_registries(), attention_on_host);
}

scenario::LoadedPoint load_point(const std::filesystem::path& file, const std::vector<std::string>& sets,
                                 std::optional<std::size_t> point) {
  if (file.extension() != kFioJobs) return scenario::load_point(file, sets, builtin_registries(), point);
  if (point) throw UserError(fmt::format("--point {}: {} has no sweep", *point, file.string()));
  return {.resolved = load_fio_jobs(file, sets, false).base};
}

scenario::Loaded load_scenario_text(std::string_view text, const std::string& name,
                                    const std::filesystem::path& directory, const std::vector<std::string>& sets,
                                    bool attention_on_host) {
  return scenario::load_scenario_text(text, name, directory, sets, builtin_registries(), attention_on_host);
}

}  // namespace csdsim::experiment
