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

/// Page operations that are simulated with setup.sampling, about: what the selection of a sparse method touches, and
/// the layers, steps and heads of the sample.
PlannedWork simulated_work(const GenerationSetup& setup);

/// A prefill with at most this share of the planned page operations of kWholeRun is simulated with all layers.
inline constexpr double kWholePrefill = 0.2;
/// A sample with at most this many planned page operations is simulated with all heads, unless their number is stated:
/// it takes a minute or two.
inline constexpr double kAllHeads = 1e8;
/// Measured heads of an attention command with which longer samples begin. Source: with them the samples of
/// scenarios/channels.yaml state 0.01 to 0.3 % from heads.
inline constexpr std::uint32_t kFirstHeads = 64;
/// Page operations simulated per second, for forecasts only, until a search has measured its own. Source: measured on
/// one core of a server of 2023: 6 to 9 million. 2.5 to 4.5 million where each page is a batch of its own: with limited
/// page buffers, and in block namespaces.
inline constexpr double kNominalRate = 7e6, kNominalRateOfSinglePages = 3e6;
/// Upper bound of the page operations of a search, as a multiple of those of the whole run. The search may end with the
/// whole run. Before that, the largest sample has half of it, and each sample has at least 1.35 times the operations of
/// the one before it, or simulates only what was missing.
inline constexpr double kMostOfSearch = 3;

/// Tells hooks.notice about how many page operations and how much time a run without asked_error takes, where this can
/// be known before: not where data or arrivals decide.
void announce(const GenerationSetup& setup, const GenerationHooks& hooks);

/// Simulates samples of growing size until the estimated errors of the time to the first token and of decode are at
/// most `setup.asked_error`. If a sample would cost more than half of the whole run, simulates the whole run instead.
/// A sample that only lacks places goes on: a new simulation has the places that are missing, and what was measured
/// before counts, too. One that needs other layers or heads is simulated anew. The choice depends on planned work and
/// simulated results, never on wall time.
GenerationOutcome run_to_error(const GenerationSetup& setup, const GenerationHooks& hooks);

}  // namespace csdsim::experiment
