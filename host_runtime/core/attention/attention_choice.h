// Methods that know the tokens of a step before they see the K and V that they attend to.
#pragma once

#include <vector>

#include "host_runtime/core/attention/attention.h"

namespace csdsim::host {

/// A method whose choice of tokens reads none of the K and V of earlier tokens: what it needs of them it has kept, so
/// that K and V of the chosen tokens can be fetched from wherever they are.
class ChoosingMethod : public AttentionMethod {
 public:
  /// The tokens that attend_layer() of the same step will attend to, by KV head, ascending, the current one included.
  /// Reads only those keys in `step.heads` that no earlier call has seen: the current token's.
  virtual std::vector<std::vector<std::uint32_t>> choose(const LayerStep& step) = 0;
  /// The tokens that outlive the latest step of a KV head, or its prompt, ascending. Null: all of them.
  virtual const std::vector<std::uint32_t>* kept(SequenceId, LayerId, std::size_t /*head*/) { return nullptr; }
};

}  // namespace csdsim::host
