// What a generation run says about its requests.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "experiment/generation/generation_run.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Adds the throughput and the times of a run: of a batch (host::GenerationMetrics), or of requests that arrive. For
/// sequences of their own lengths also their latency and the K and V in use; mean, median and 99th percentile are over
/// the requests (nearest rank).
void add_generation_metrics(nlohmann::ordered_json& metrics, const GenerationOutcome& out, const scenario::Scenario& s,
                            const host::OffloadSystem& system);

/// One line per request: its lengths and, in seconds from the start of the run, its times.
std::string requests_csv(const RequestOutcome& outcome, const host::BatchLengths& lengths);

/// A sentence for people, such as "30 requests took 1.2 s each (p99 3.4 s), ..."
std::string meaning_of_requests(const RequestOutcome& outcome, const nlohmann::ordered_json& metrics);

}  // namespace csdsim::experiment
