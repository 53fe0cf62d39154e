// What a framework costs beside the work of its model.
#pragma once

#include <cstdint>

#include "base/units.h"

namespace csdsim::host {

/// Parameters of systems/software_parameters.h.
struct Software {
  SimTime per_step = {};  ///< time per decode step of a mini-batch, while its GPU waits
  /// Copies of the logits of all tokens of the prompts in GPU memory when the first tokens are sampled. 0: only those
  /// of the last token of each prompt are computed.
  std::uint32_t prompt_logits = 0;
};

}  // namespace csdsim::host
