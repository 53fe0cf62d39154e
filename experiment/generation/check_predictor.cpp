#include "experiment/generation/check_predictor.h"

#include <fmt/format.h>

#include "base/error.h"
#include "host_runtime/checkpoint/predictor_file.h"

namespace csdsim::experiment {

std::shared_ptr<const host::LowRankWeights> trained_predictor(const scenario::Scenario& scenario) {
  const std::filesystem::path& directory = scenario.model.path.value().path;
  return host::open_predictor(directory / "predictor.safetensors", directory, scenario.model);
}

void check_predictor(scenario::Checker& c, const GenerationWorkload& work) {
  const scenario::Scenario& s = c.scenario();
  if (s.simulation.data != ftl::DataMode::carried || !s.model.path || !c.readable({"system", "model"})) return;
  const auto weights = s.system->flash_weights(planned_run(s, work.lengths()));
  if (!weights || !weights->asks_trained()) return;
  const char* at = "system.predictor";
  try {
    const auto trained = trained_predictor(s);
    at = "system.predictor_rank";
    if (const auto& ranks = weights->options().predictor_rank; !ranks.empty()) trained->check_ranks(ranks);
  } catch (const UserError& e) {
    c.error_at(at, fmt::format("{}: {}", at, e.what()));
  }
}

}  // namespace csdsim::experiment
