#include "experiment/checkpoint/check_predictor.h"

#include "host_runtime/checkpoint/predictor_file.h"

namespace csdsim::experiment {

std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario) {
  const std::filesystem::path& directory = scenario.model.path.value().path;
  return host::open_predictor(directory / "predictor.safetensors", directory, scenario.model);
}

void check_checkpoint(scenario::Checker& c, const GenerationWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  if (s.simulation.data != ftl::DataMode::carried || !s.model.path || !c.readable({"system", "model"})) return;
  const host::CheckpointSources sources{.trained = [&] { return trained_predictor(s); }};
  for (const auto& feature : s.system->features(planned_run(s, work.lengths()))) feature->check(c, sources);
}

}  // namespace csdsim::experiment
