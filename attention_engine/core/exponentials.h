// The numerator and denominator of a softmax.
#pragma once

#include <algorithm>
#include <cstddef>
#include <limits>

#include "base/simd.h"

namespace csdsim::engine {

/// x[j] becomes exp(x[j] - max x); returns their sum. All zero, and 0, if every entry is -inf.
inline float exponentials(float* x, std::size_t n) {
  const float largest = simd::max_value(x, n);
  if (largest != -std::numeric_limits<float>::infinity()) return simd::exp_shifted(x, n, largest);
  std::fill_n(x, n, 0.0f);
  return 0.0f;
}

}  // namespace csdsim::engine
