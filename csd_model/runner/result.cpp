#include "csd_model/runner/result.h"

#include <sys/resource.h>

#include "csd_model/runner/runner.h"
#include "csd_model/scenario/load.h"

namespace csd_model {

using nlohmann::ordered_json;

ordered_json build_info() {
  return {{"version", CSDSIM_VERSION}, {"compiler", __VERSION__}, {"type", CSDSIM_BUILD_TYPE}};
}

ordered_json result_frame(const csdsim::scenario::Scenario& scenario) {
  ordered_json document;
  document["schema"] = kResultSchema;
  document["build"] = build_info();
  document["name"] = scenario.name;
  document["seed"] = scenario.seed;
  document["scenario"] = csdsim::scenario::effective_config(scenario);
  return document;
}

ordered_json wall_figures(const WallClock& clock, std::uint64_t page_ops) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = clock.seconds();
  return {{"wall_s", seconds},
          {"page_ops_per_wall_s", static_cast<double>(page_ops) / seconds},
          {"peak_rss_bytes", static_cast<std::uint64_t>(usage.ru_maxrss) * 1024}};
}

}  // namespace csd_model
