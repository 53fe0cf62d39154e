// The figures of a serving run as Prometheus text, under the names that dashboards of vLLM know.
#pragma once

#include <string>

#include "experiment/serving/serving_run.h"

namespace csdsim::experiment {

/// Histograms of times, counters of tokens and blocks, and bytes by tier, as they stand at the end of the run, of all
/// requests. Tier 0 is host memory ("0:cpu"), tier 1 the drives ("1:fs").
std::string prometheus_text(const ServingOutcome& outcome);

}  // namespace csdsim::experiment
