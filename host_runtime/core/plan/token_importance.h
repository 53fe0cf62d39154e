// The tokens that matter in a decode step, for runs that carry no data.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"

namespace csdsim::host {

/// The important tokens of consecutive decode steps.
class TokenImportance {
 public:
  virtual ~TokenImportance() = default;
  /// Whether layers may have a list for each KV head: they are asked for as further layers then.
  virtual bool has_lists_of_heads() const { return true; }
  /// The `count` most important tokens of the next step of `sequence` in `layer`: positions below `context`, ascending
  /// without repetition. `context` counts the current token, which is position context - 1; it never decreases from
  /// step to step. Replaces what `positions` held. Precondition: count <= context.
  virtual void next(SequenceId sequence, LayerId layer, std::uint32_t context, std::uint32_t count,
                    std::vector<std::uint32_t>& positions) = 0;
};

}  // namespace csdsim::host
