// The result of a serving run.
#pragma once

#include <vector>

#include "base/metric.h"
#include "experiment/result.h"
#include "experiment/serving/serving_run.h"

namespace csdsim::experiment {

/// The metrics of serving runs.
std::vector<MetricInfo> serving_metric_infos();

/// The document; beside it requests.csv (a row per request), load.csv (requests and blocks over time) and metrics.prom
/// (prometheus.h).
scenario::RunResult serving_result(const scenario::Scenario& scenario, const ServingWorkload& work,
                                   const ServingOutcome& outcome, const WallClock& clock);

}  // namespace csdsim::experiment
