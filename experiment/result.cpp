#include "experiment/result.h"

#include <sys/resource.h>

#include "base/json_object.h"
#include "experiment/runner.h"
#include "scenario/load.h"

namespace csdsim::experiment {

using nlohmann::ordered_json;

ordered_json build_info() {
  return {{"version", CSDSIM_VERSION}, {"compiler", __VERSION__}, {"type", CSDSIM_BUILD_TYPE}};
}

ordered_json result_frame(const scenario::Scenario& scenario) {
  ordered_json document = object_for(16);
  document["schema"] = kResultSchema;
  document["build"] = build_info();
  document["name"] = scenario.name;
  document["seed"] = scenario.seed;
  document["scenario"] = scenario::effective_config(scenario);
  return document;
}

csd_model::EnergyBreakdown drive_energy(const scenario::Scenario& scenario, const csd_model::DriveWork& work) {
  const csd_model::DeviceConfig& device = scenario.platform.device;
  const csd_model::EnergyParts parts{.dies = device.flash.geometry.dies(),
                                     .dram_gib = static_cast<double>(device.dram.capacity.value) * 0x1p-30,
                                     .engine = device.has_engine()};
  return energy(device.energy, parts, work);
}

void add_energy(ordered_json& document, const scenario::Scenario& scenario, const csd_model::DriveWork& work,
                const EnergyYield& yield) {
  const csd_model::EnergyBreakdown joules = drive_energy(scenario, work);
  ordered_json& metrics = document["metrics"];
  metrics["energy_j"] = csd_model::total(joules);
  if (yield.tokens > 0) metrics["energy_per_token_j"] = csd_model::total(joules) / yield.tokens;
  if (yield.bytes > 0) metrics["energy_per_gb_j"] = csd_model::total(joules) / (yield.bytes * 1e-9);
  ordered_json& breakdown = document["breakdown"]["energy"];
  for (std::size_t i = 0; i < csd_model::kEnergyComponents; ++i)
    if (scenario.platform.device.has_engine() ||
        static_cast<csd_model::EnergyComponent>(i) != csd_model::EnergyComponent::engine)
      breakdown[std::string(csd_model::kEnergyComponentNames[i])] = joules[i];
}

ordered_json wall_figures(const WallClock& clock, std::uint64_t page_ops) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = clock.seconds();
  return {{"wall_s", seconds},
          {"page_ops_per_wall_s", static_cast<double>(page_ops) / seconds},
          {"peak_rss_bytes", static_cast<std::uint64_t>(usage.ru_maxrss) * 1024}};
}

}  // namespace csdsim::experiment
