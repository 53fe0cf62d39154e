// Checks of requests with their own lengths and arrivals.
#pragma once

#include <cstdint>
#include <string>

#include "experiment/generation/generation_workload.h"
#include "scenario/check.h"

namespace csdsim::experiment {

/// ": give model.max_positions, or llama-3.1-8b": the presets of equal sizes that hold `tokens`. Empty if a sliding
/// window is the limit.
std::string longer_models(const host::ModelSpec& model, std::uint64_t tokens);

/// Reads the file of requests and decides which arrivals count; checks that the system can do it. False if there is a
/// file that cannot be used.
bool check_requests(scenario::Checker& c, GenerationWorkload& work);

/// Checks that the model has positions for every request. Needs the shape of the model.
void check_request_lengths(scenario::Checker& c, const GenerationWorkload& work);

}  // namespace csdsim::experiment
