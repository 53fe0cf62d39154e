// Time that the software of a framework adds to every step.
#pragma once

#include "base/units.h"
#include "host_runtime/core/planner/tensor.h"

namespace csdsim::host {

/// Nothing else of the mini-batch overlaps with it.
struct SoftwareTime {
  SimTime per_step{};             ///< of a mini-batch
  SimTime per_generated_token{};  ///< further time per step for each token that has been generated before

  SimTime of(const OpTag& tag) const {
    if (tag.phase == Phase::prefill) return {};
    return per_step + per_generated_token * (tag.step + std::int64_t{1});
  }
};

}  // namespace csdsim::host
