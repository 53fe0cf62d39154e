#include "host_runtime/core/eval/spread.h"

#include <cmath>

namespace csdsim::host {

Spread standard_error(std::span<const double> terms) {
  if (terms.size() < 2) return {};
  const auto n = static_cast<double>(terms.size());
  double mean = 0, squares = 0;
  for (const double term : terms) mean += term / n;
  for (const double term : terms) squares += (term - mean) * (term - mean);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace csdsim::host
