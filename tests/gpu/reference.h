// The operators in double precision, written as plainly as possible: the reference for GPU kernels.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "base/fp16.h"

namespace gpu_test {

using Floats = std::vector<float>;

/// A 16-bit float format: fp16, or bf16 as the upper half of a float.
enum class Format : std::uint8_t { f16, bf16 };

inline std::uint16_t narrow(float value, Format format) {
  if (format == Format::f16) return csdsim::float_to_half(value);
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return static_cast<std::uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
inline float widen(std::uint16_t value, Format format) {
  if (format == Format::f16) return csdsim::half_to_float(value);
  const std::uint32_t bits = std::uint32_t{value} << 16;
  float result;
  std::memcpy(&result, &bits, sizeof result);
  return result;
}
/// The values that a kernel in this format sees.
inline Floats rounded(Floats values, Format format) {
  for (float& v : values) v = widen(narrow(v, format), format);
  return values;
}

/// x [rows][k] w [n][k]^T.
inline Floats product(const Floats& x, const Floats& w, std::size_t k) {
  const std::size_t rows = x.size() / k, n = w.size() / k;
  Floats out(rows * n);
  for (std::size_t r = 0; r < rows; ++r) {
    for (std::size_t c = 0; c < n; ++c) {
      double sum = 0;
      for (std::size_t i = 0; i < k; ++i) sum += double{x[r * k + i]} * double{w[c * k + i]};
      out[r * n + c] = static_cast<float>(sum);
    }
  }
  return out;
}

/// softmax(q K^T / sqrt(d)) V of one query over chosen rows; key j starts at keys[rows[j] * stride].
inline Floats attend(const float* q, const float* keys, const float* values, std::size_t stride, std::size_t d,
                     const std::vector<std::uint32_t>& rows) {
  std::vector<double> score(rows.size());
  double top = -INFINITY, sum = 0;
  for (std::size_t j = 0; j < rows.size(); ++j) {
    for (std::size_t i = 0; i < d; ++i) score[j] += double{q[i]} * double{keys[rows[j] * stride + i]};
    score[j] /= std::sqrt(static_cast<double>(d));
    top = std::max(top, score[j]);
  }
  std::vector<double> out(d, 0.0);
  for (std::size_t j = 0; j < rows.size(); ++j) {
    const double weight = std::exp(score[j] - top);
    sum += weight;
    for (std::size_t i = 0; i < d; ++i) out[i] += weight * double{values[rows[j] * stride + i]};
  }
  Floats result(d);
  for (std::size_t i = 0; i < d; ++i) result[i] = rows.empty() ? 0.0f : static_cast<float>(out[i] / sum);
  return result;
}

inline std::vector<std::uint32_t> first_rows(std::uint32_t count) {
  std::vector<std::uint32_t> rows(count);
  for (std::uint32_t i = 0; i < count; ++i) rows[i] = i;
  return rows;
}

}  // namespace gpu_test
