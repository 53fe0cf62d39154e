// Losses of power in a run, as metrics.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "base/metric.h"
#include "csd_model/power_losses.h"

namespace csdsim::platform {
class Platform;
}

namespace csdsim::experiment {

/// In the whole run.
struct PowerOutcome {
  csd_model::PowerLosses losses;
  std::uint64_t unsafe_shutdowns = 0;  ///< as SMART counts them
  std::uint64_t reissued = 0;          ///< commands that the driver has issued again
};

/// The outcome of the drive whose power failed; nothing where none did.
std::optional<PowerOutcome> power_outcome(platform::Platform& platform);

struct PowerMetric {
  MetricInfo info;
  double (*value)(const PowerOutcome&);
  bool whole = true;
};
const std::vector<PowerMetric>& power_metrics();

/// The same of runs that have an outcome, or null.
template <class Source>
std::vector<Metric<Source>> power_metrics(std::function<const PowerOutcome*(const Source&)> of) {
  std::vector<Metric<Source>> metrics;
  for (const PowerMetric& each : power_metrics())
    metrics.push_back({each.info,
                       [of, value = each.value](const Source& source) -> std::optional<double> {
                         const PowerOutcome* const power = of(source);
                         return power != nullptr ? std::optional(value(*power)) : std::nullopt;
                       },
                       each.whole});
  return metrics;
}

}  // namespace csdsim::experiment
