// Generation for real on the streams of a GPU, without simulated time.
#pragma once

#include "scenario/experiment.h"
#include "scenario/scenario.h"

namespace csdsim::experiment {

/// Where the rates come from that a plan is solved with.
enum class RateSource : std::uint8_t { measured, platform };

/// True if a system can run on streams.
bool runs_on_streams(const host::OffloadSystem& system);

/// The tokens of the prompt in `options`, or of the scenario, by a system that runs on streams; the time and bytes of
/// each stream under `streams`. UserError for what a real run does not have, and without a GPU.
scenario::RunResult generate_on_streams(const scenario::Scenario& scenario, const scenario::RunOptions& options,
                                        RateSource rates);

}  // namespace csdsim::experiment
