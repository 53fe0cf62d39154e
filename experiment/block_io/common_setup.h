// Setup code that block_io and trace runs share.
#pragma once

#include <fmt/format.h>

#include <string_view>

#include "base/error.h"
#include "experiment/assemble.h"
#include "experiment/block_io/block_io.h"
#include "experiment/runner.h"

namespace csdsim::experiment {

inline Bytes share_of(Bytes capacity, Ratio share) {
  return Bytes{static_cast<std::uint64_t>(static_cast<double>(capacity.value) * share.value())};
}

/// Describes the content of the drive before the first request.
std::string_view fill_statement(const BlockIoSetup& setup);

BlockIoProgress progress_of(const scenario::RunOptions& options);

/// Runs, and writes the trace that the options ask for.
BlockIoOutcome run_traced(const BlockIoSetup& setup, const scenario::RunOptions& options);

/// The parameters that block_io and trace share, as a setup; `fill` is what is written before the run.
BlockIoSetup common_setup(const scenario::Scenario& s, const BlockRunConfig& config, Fill fill);

}  // namespace csdsim::experiment
