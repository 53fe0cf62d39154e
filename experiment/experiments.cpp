#include "experiment/experiments.h"

#include "experiment/block_io/block_workload.h"
#include "experiment/evaluation/eval_run.h"
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

scenario::Loaded load_scenario(const std::filesystem::path& file, const std::vector<std::string>& sets,
                               bool attention_on_host) {
  return scenario::load_scenario(file, sets, builtin_registries(), attention_on_host);
}

scenario::Loaded load_scenario_text(std::string_view text, const std::string& name,
                                    const std::filesystem::path& directory, const std::vector<std::string>& sets,
                                    bool attention_on_host) {
  return scenario::load_scenario_text(text, name, directory, sets, builtin_registries(), attention_on_host);
}

}  // namespace csdsim::experiment
