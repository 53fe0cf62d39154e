// Time that the software of a framework adds to every step.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim::host {

/// Nothing else of the mini-batch overlaps with it.
struct SoftwareTime {
  SimTime per_step{};             ///< software time of a step, per mini-batch
  SimTime per_generated_token{};  ///< further time per step for each token that was generated before it; of sequences
                                  ///< that differ, the one with most of them counts

  /// Software time of a decode step of sequences that have generated so many tokens.
  SimTime of(std::uint32_t generated) const { return per_step + per_generated_token * generated; }
};

}  // namespace csdsim::host
