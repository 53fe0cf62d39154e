// The argtopk unit's function: deterministic selection of the largest keys.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace csdsim::engine {

/// Indices of the min(k, n) largest of n keys, ascending. Equal keys: the lower index wins; -0 equals +0; NaN comes
/// last. Reuses its buffer from call to call.
class TopK {
 public:
  void select(std::span<const float> keys, std::uint32_t k, std::vector<std::uint32_t>& out);

 private:
  std::vector<std::uint64_t> ranked_;
};

}  // namespace csdsim::engine
