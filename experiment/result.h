// The parts of a result document that are the same for all kinds of runs.
#pragma once

#include <chrono>
#include <cstdint>
#include <nlohmann/json.hpp>

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

/// Amounts that energy is divided by; 0 omits the metric.
struct EnergyYield {
  double tokens = 0;  ///< generated tokens
  double bytes = 0;   ///< bytes of host requests (block_io) or on the flash channels (generation)
};

/// The energy of the drives for this work.
csd_model::EnergyBreakdown drive_energy(const scenario::Scenario& scenario, const csd_model::DriveWork& work);

/// Adds metrics `energy_j`, `energy_per_token_j` and `energy_per_gb_j` (of 10^9 bytes), and breakdown `energy`: joules
/// per component.
void add_energy(nlohmann::ordered_json& document, const scenario::Scenario& scenario, const csd_model::DriveWork& work,
                const EnergyYield& yield);

/// The only figures that differ from run to run: {wall_s, page_ops_per_wall_s, peak_rss_bytes}.
nlohmann::ordered_json wall_figures(const WallClock& clock, std::uint64_t page_ops);

}  // namespace csdsim::experiment
