// Decides how much of a generation run is simulated so that its estimated error is at most `setup.asked_error`.
#pragma once

#include "experiment/generation/generation_run.h"

namespace csdsim::experiment {

/// Page operations of the whole run, computed from prompt and output lengths. For sparse systems the reads are an upper
/// bound.
struct PlannedWork {
  double prefill = 0;
  double decode = 0;
  double total() const { return prefill + decode; }
};
PlannedWork planned_work(const GenerationSetup& setup);

/// A run with at most this many planned page operations is simulated whole; it takes seconds.
inline constexpr double kWholeRun = 5e7;
/// A prefill with at most this many planned page operations is simulated with all layers.
inline constexpr double kWholePrefill = 1e7;
/// Page operations simulated per second, for forecasts only. Source: measured with bench/ on one core of a server of
/// 2023: 8 to 20 million.
inline constexpr double kNominalRate = 1.2e7;

/// Simulates samples of growing size until the estimated errors of the time to the first token and of decode are at
/// most `setup.asked_error`. If a sample would cost more than half of the whole run, simulates the whole run instead.
/// Each sample is a new simulation. The choice depends on planned work and simulated results, never on wall time.
GenerationOutcome run_to_error(const GenerationSetup& setup, const GenerationHooks& hooks);

}  // namespace csdsim::experiment
