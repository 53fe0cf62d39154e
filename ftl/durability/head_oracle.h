// The contents of a KV head as plain arrays.
#pragma once

#include <span>
#include <vector>

#include "base/fp16.h"
#include "contracts/row_quantisation.h"

namespace csdsim::ftl::durability {

/// Rows in a format as elements, [tokens][d].
inline std::vector<Half> elements_of(const RowQuantisation& format, std::span<const Half> rows, std::uint32_t d) {
  if (!format.quantised()) return {rows.begin(), rows.end()};
  std::vector<Half> elements(rows.size_bytes() / format.row(d, sizeof(Half)).value * d);
  dequantise_rows(format, std::as_bytes(rows), d, elements);
  return elements;
}

struct HeadOracle {
  std::vector<Half> keys;    ///< rows of tokens, [tokens][d] with fp16
  std::vector<Half> values;  ///< likewise
  std::vector<float> mean;   ///< mean of the values, updated token by token as the FTL does it

  /// Appends rows of `d` elements.
  void append(std::span<const Half> new_keys, std::span<const Half> new_values, std::uint32_t d,
              const RowQuantisation& format = {}) {
    mean.resize(d);
    std::size_t token = keys.size() * sizeof(Half) / format.row(d, sizeof(Half)).value;
    const std::vector<Half> elements = elements_of(format, new_values, d);
    for (std::size_t i = 0; i < elements.size(); ++i) {
      if (i % d == 0) ++token;
      mean[i % d] += (half_to_float(elements[i]) - mean[i % d]) / static_cast<float>(token);
    }
    keys.insert(keys.end(), new_keys.begin(), new_keys.end());
    values.insert(values.end(), new_values.begin(), new_values.end());
  }
};

}  // namespace csdsim::ftl::durability
