#include "experiment/write_metrics.h"

#include <fmt/format.h>

namespace csdsim::experiment {

void add_write_amplification(nlohmann::ordered_json& metrics, const std::string& prefix, const ftl::WriteWork& work) {
  const std::string name = prefix + "write_amplification";
  metrics[name] = work.amplification();
  if (work.written == 0) return;
  for (const ftl::WriteWork::Part& part : ftl::WriteWork::parts())
    metrics[fmt::format("{}_{}", name, part.name)] = work.share_of(part);
}

}  // namespace csdsim::experiment
