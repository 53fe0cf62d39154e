// The numerator and denominator of a softmax.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/simd.h"

namespace csdsim::engine {

struct Exponentials {
  float largest = 0;  ///< m; -inf if every entry is, or there is none
  float sum = 0;      ///< z
};

/// x[j] becomes exp(x[j] - max x). All zero, with sum 0, if every entry is -inf.
inline Exponentials exponentials(float* x, std::size_t n) {
  const float largest = simd::max_value(x, n);
  if (largest != -std::numeric_limits<float>::infinity()) return {largest, simd::exp_shifted(x, n, largest)};
  std::fill_n(x, n, 0.0f);
  return {largest, 0.0f};
}

}  // namespace csdsim::engine
