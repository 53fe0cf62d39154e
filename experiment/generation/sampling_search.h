// Chooses by itself how much of a generation run is simulated, to an asked error.
#pragma once

#include "experiment/generation/generation_run.h"

namespace csdsim::experiment {

/// Page operations of the whole run, from its lengths: reads of sparse systems are an upper bound.
struct PlannedWork {
  double prefill = 0;
  double decode = 0;
  double total() const { return prefill + decode; }
};
PlannedWork planned_work(const GenerationSetup& setup);

/// Runs of up to so many page operations take seconds: they are simulated whole.
inline constexpr double kWholeRun = 5e7;
/// A prefill of up to so many is simulated with all layers.
inline constexpr double kWholePrefill = 1e7;
/// Page operations that one core simulates per second; for forecasts only. Source: measured, bench/ on one core of a
/// server of 2023, between 8 and 20 million.
inline constexpr double kNominalRate = 1.2e7;

/// Simulates samples of growing size until the estimated errors of time to the first token and of decode are within
/// `setup.asked_error`, or until a sample would cost half of the whole run, which is simulated then. Each sample starts
/// anew. The choice depends on simulated results only, never on wall time.
GenerationOutcome run_to_error(const GenerationSetup& setup, const GenerationHooks& hooks);

}  // namespace csdsim::experiment
