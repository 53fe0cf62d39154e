#include "experiment/checkpoint/trained_predictor.h"

#include "host_runtime/checkpoint/predictor_file.h"

namespace csdsim::experiment {

std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario) {
  const std::filesystem::path& directory = scenario.model.path.value().path;
  return host::open_predictor(directory / "predictor.safetensors", directory, scenario.model);
}

}  // namespace csdsim::experiment
