// Checks of requests with their own lengths and arrivals.
#pragma once

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// Reads the file of requests and decides which arrivals count; checks that the system can do it. False if there is a
/// file that cannot be used.
bool check_requests(scenario::Checker& c, GenerationWorkload& work);

/// Checks that the model has positions for every request. Needs the shape of the model.
void check_request_lengths(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
