#include "experiment/generation/check_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace csdsim::experiment {

using scenario::Checker;
using scenario::Scenario;

host::SystemNeeds needs_at(const Scenario& s, const GenerationWorkload& work, host::Home home,
                           host::BatchLengths lengths) {
  if (home == host::Home::gpu && s.platform.gpu.count > 1) {
    const auto batch = static_cast<std::uint32_t>(lengths.prompt_tokens.size());
    // The first GPU has the most sequences.
    const std::vector<host::Share> parts = host::even_shares(batch, work.mini_batches_of(s, batch));
    std::size_t sequences = 0;
    for (std::size_t i = 0; i < parts.size(); i += s.platform.gpu.count) sequences += parts[i].count;
    lengths.prompt_tokens.resize(sequences);
  }
  return s.system->needs(s.model.shape(), lengths);
}

bool check_gpus(Checker& c, const GenerationWorkload& work) {
  const Scenario& s = c.scenario();
  const std::uint32_t gpus = s.platform.gpu.count;
  const std::uint32_t parts = work.mini_batches_of(s, work.batch);
  if (parts >= gpus) return true;
  if (work.batch < gpus)
    c.require(false, {"platform.gpu.count", "workload.batch"},
              fmt::format("platform.gpu.count: {} GPUs for a batch of {}: each computes at least one sequence; a batch "
                          "of {} or {} GPUs would do",
                          gpus, work.batch, gpus, work.batch));
  else
    c.require(false, {"platform.gpu.count", "workload.mini_batches"},
              fmt::format("platform.gpu.count: {} GPUs for {} mini-batches (workload.mini_batches): each computes at "
                          "least one; {} mini-batches or {} GPUs would do",
                          gpus, parts, gpus, parts));
  return false;
}

}  // namespace csdsim::experiment
