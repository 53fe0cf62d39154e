// The parts of a result document that are the same for all kinds of runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "base/metric.h"
#include "csd_model/energy.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Measures wall time since its construction.
class WallClock {
 public:
  double seconds() const { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count(); }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// {schema, build, name, seed, scenario}; metrics, breakdown and stats follow.
nlohmann::ordered_json result_frame(const scenario::Scenario& scenario);

/// Writes the metrics that a run has.
template <class Source>
void add_metrics(nlohmann::ordered_json& to, const std::vector<Metric<Source>>& metrics, const Source& source) {
  for (const Metric<Source>& metric : metrics)
    if (const std::optional<double> value = metric.value(source))
      to[metric.info.name] =
          metric.whole ? nlohmann::ordered_json(static_cast<std::uint64_t>(*value)) : nlohmann::ordered_json(*value);
}

/// What a run on drives has done. In a generation the work is that of the phases, scaled to all layers and steps, and
/// the rest that of what was simulated.
struct RunWork {
  csd_model::DriveWork work;
  csd_model::EnergyBreakdown energy = {};
  double energy_bytes = 0;  ///< bytes that energy per byte refers to: those of host requests (block_io), or on the
                            ///< flash channels (generation)
  std::uint64_t issued = 0, completed = 0;
};
/// Runs whose requests are commands to the drives, with work in whole numbers; and generations, whose requests are
/// prompts, with work scaled to all layers and steps.
enum class RunOf : std::uint8_t { blocks, generation };
/// requests_issued and requests_completed: block commands, or prompts of a generation.
std::vector<MetricInfo> request_metrics();
/// The metrics of all runs on drives.
std::vector<Metric<RunWork>> run_metrics(RunOf run_of);

/// The energy of the drives for this work.
csd_model::EnergyBreakdown drive_energy(const scenario::Scenario& scenario, const csd_model::DriveWork& work);

/// Joules per component, without those that the drive lacks.
nlohmann::ordered_json energy_breakdown(const scenario::Scenario& scenario, const csd_model::EnergyBreakdown& joules);

/// The metrics of all simulations: how much was simulated, and what the host spent. add_simulated() writes the first.
std::vector<MetricInfo> simulation_metrics();
void add_simulated(nlohmann::ordered_json& metrics, double seconds, std::uint64_t page_ops);

/// The only figures that differ from run to run: {wall_s, page_ops_per_wall_s, peak_rss_bytes}.
nlohmann::ordered_json wall_figures(const WallClock& clock, std::uint64_t page_ops);

}  // namespace csdsim::experiment
