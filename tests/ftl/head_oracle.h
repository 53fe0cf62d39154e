// The contents of a KV head as plain arrays.
#pragma once

#include <span>
#include <vector>

#include "base/fp16.h"

namespace csdsim::ftl::test {

struct HeadOracle {
  std::vector<Half> keys;    ///< [tokens][d]
  std::vector<Half> values;  ///< [tokens][d]
  std::vector<float> mean;   ///< of the values, updated token by token as the FTL does it

  /// Appends tokens of `d` elements; both spans are [tokens][d].
  void append(std::span<const Half> new_keys, std::span<const Half> new_values, std::uint32_t d) {
    mean.resize(d);
    std::size_t token = keys.size() / d;
    for (std::size_t i = 0; i < new_values.size(); ++i) {
      if (i % d == 0) ++token;
      mean[i % d] += (half_to_float(new_values[i]) - mean[i % d]) / static_cast<float>(token);
    }
    keys.insert(keys.end(), new_keys.begin(), new_keys.end());
    values.insert(values.end(), new_values.begin(), new_values.end());
  }
};

}  // namespace csdsim::ftl::test
