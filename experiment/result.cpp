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

ordered_json energy_breakdown(const scenario::Scenario& scenario, const csd_model::EnergyBreakdown& joules) {
  ordered_json breakdown;
  for (std::size_t i = 0; i < csd_model::kEnergyComponents; ++i)
    if (scenario.platform.device.has_engine() ||
        static_cast<csd_model::EnergyComponent>(i) != csd_model::EnergyComponent::engine)
      breakdown[std::string(csd_model::kEnergyComponentNames[i])] = joules[i];
  return breakdown;
}

std::vector<MetricInfo> request_metrics() {
  return {
      {"requests_issued", "1", "Requests submitted: block commands, the warm-up included, or prompts of a generation."},
      {"requests_completed", "1",
       "Requests that have completed, counted in the same way. A run in which fewer complete has failed."}};
}

std::vector<Metric<RunWork>> run_metrics(RunOf run_of) {
  const bool blocks = run_of == RunOf::blocks, counted = blocks;
  const std::vector<MetricInfo> requests = request_metrics();
  const MetricInfo issued{"commands_issued", "1", "Commands submitted to the drives."},
      completed{"commands_completed", "1", "Commands that have completed. A run in which fewer complete has failed."};
  return {
      {blocks ? requests[0] : issued, [](const RunWork& run) { return double(run.issued); }, true},
      {blocks ? requests[1] : completed, [](const RunWork& run) { return double(run.completed); }, true},
      {{"bytes_host_link", "B", "Bytes over the links of the drives, both directions."},
       [](const RunWork& run) { return run.work.link_bytes; },
       counted},
      {{"bytes_flash_channel", "B", "Bytes over the flash channels of all drives."},
       [](const RunWork& run) { return run.work.channel_bytes; },
       counted},
      {{"energy_j", "J", "Energy of the drives (docs/energy.md)."},
       [](const RunWork& run) { return csd_model::total(run.energy); }},
      {{"energy_per_gb_j", "J",
        "Energy per 10^9 bytes: of commands of the host, or, in a generation, over the flash channels."},
       [](const RunWork& run) -> std::optional<double> {
         if (run.energy_bytes <= 0) return std::nullopt;
         return csd_model::total(run.energy) / (run.energy_bytes * 1e-9);
       }},
  };
}

namespace {

constexpr const char *kSimulatedSeconds = "simulated_s", *kPageOps = "page_ops", *kWallSeconds = "wall_s",
                     *kPageOpRate = "page_ops_per_wall_s", *kMemory = "peak_rss_bytes";

}  // namespace

std::vector<MetricInfo> simulation_metrics() {
  return {{kSimulatedSeconds, "s", "Simulated time, of what was simulated."},
          {kPageOps, "1", "Page reads, programs and block erases, of what was simulated."},
          {kWallSeconds, "s", "Time that the host took for the run (under `wall`)."},
          {kPageOpRate, "1/s", "Page operations per second of the host (under `wall`).", "page_ops / wall.wall_s"},
          {kMemory, "B", "Largest memory of the process (under `wall`)."}};
}

void add_simulated(ordered_json& metrics, double seconds, std::uint64_t page_ops) {
  metrics[kSimulatedSeconds] = seconds;
  metrics[kPageOps] = page_ops;
}

ordered_json wall_figures(const WallClock& clock, std::uint64_t page_ops) {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const double seconds = clock.seconds();
  return {{kWallSeconds, seconds},
          {kPageOpRate, static_cast<double>(page_ops) / seconds},
          {kMemory, static_cast<std::uint64_t>(usage.ru_maxrss) * 1024}};
}

}  // namespace csdsim::experiment
