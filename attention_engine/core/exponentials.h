// The numerator and denominator of a softmax, and the tokens that are not in it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "attention_engine/core/kv_source.h"
#include "base/simd.h"

namespace csdsim::engine {

struct Exponentials {
  float largest = 0;  ///< m; -inf if every entry is, or there is none
  float sum = 0;      ///< z
};

/// The logits of tokens that take no part.
inline void leave_out(std::span<const TokenRange> dropped, float* logits) {
  for (const TokenRange& range : dropped)
    std::fill(logits + range.first, logits + range.end, -std::numeric_limits<float>::infinity());
}

/// True if a token is in one of `dropped`.
inline bool left_out(std::span<const TokenRange> dropped, std::uint32_t token) {
  return std::ranges::any_of(dropped, [&](const TokenRange& r) { return r.first <= token && token < r.end; });
}

/// x[j] becomes exp(x[j] - max x). All zero, with sum 0, if every entry is -inf.
inline Exponentials exponentials(float* x, std::size_t n) {
  const float largest = simd::max_value(x, n);
  if (largest != -std::numeric_limits<float>::infinity()) return {largest, simd::exp_shifted(x, n, largest)};
  std::fill_n(x, n, 0.0f);
  return {largest, 0.0f};
}

}  // namespace csdsim::engine
