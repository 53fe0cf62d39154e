// Metrics of the requests of a generation run.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/metric.h"
#include "experiment/generation/generation_run.h"
#include "host_runtime/core/plan/metrics.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// What the metrics of a run are worked out from. Whatever it refers to must outlive it.
struct MeasuredGeneration {
  MeasuredGeneration(const GenerationOutcome& outcome, const scenario::Scenario& scenario,
                     const host::OffloadSystem& system);

  const GenerationOutcome& out;
  const scenario::Scenario& scenario;
  bool served;                                      ///< requests arrive at their own times
  bool in_drives;                                   ///< K and V are in the drives' KV namespaces
  std::optional<host::GenerationMetrics> of_batch;  ///< unless served
  Bytes token;                                      ///< K and V of a token in all layers, as the system keeps them
  ftl::WriteWork kv_writes;                         ///< what was programmed in the KV namespaces
  Bytes written;                                    ///< served: K and V of all tokens
};
using GenerationMetric = Metric<MeasuredGeneration>;

/// The throughput and the times of a run: of a batch, or of requests that arrive. For sequences of their own lengths
/// also their latency and the K and V in use; mean, median and 99th percentile are over the requests (nearest rank).
std::vector<GenerationMetric> speed_metrics();

/// One line per request: its lengths and, in seconds from the start of the run, its times.
std::string requests_csv(const RequestOutcome& outcome);

/// A sentence for people, such as "30 requests took 1.2 s each (p99 3.4 s), ..."
std::string meaning_of_requests(const RequestOutcome& outcome, const nlohmann::ordered_json& metrics);

}  // namespace csdsim::experiment
