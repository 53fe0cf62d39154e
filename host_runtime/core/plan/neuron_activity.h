// The active neurons, token by token, for runs that carry no data.
#pragma once

#include <cstdint>
#include <vector>

#include "base/address.h"

namespace csdsim::host {

/// Active neurons of consecutive tokens.
class NeuronActivity {
 public:
  virtual ~NeuronActivity() = default;
  /// Neurons that are active in `layer` for the next token of `sequence`, ascending without repetition. Replaces what
  /// `active` held.
  virtual void next(SequenceId sequence, LayerId layer, std::vector<std::uint32_t>& active) = 0;
  /// Remembers the latest token of `sequence` in `layer`.
  virtual void mark(SequenceId sequence, LayerId layer) = 0;
  /// The tokens after the mark were rejected: next() continues with another one after the marked token.
  virtual void go_back(SequenceId sequence, LayerId layer) = 0;
};

}  // namespace csdsim::host
