// base/simd.h without Highway: one order of summation, the obvious one.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/simd.h"

namespace csdsim::simd {

float dot(const float* q, const Half* row, std::size_t d) {
  float sum = 0;
  for (std::size_t i = 0; i < d; ++i) sum += q[i] * half_to_float(row[i]);
  return sum;
}

void gemv_rows(const float* q, const Half* rows, std::size_t n_rows, std::size_t d, float* scores, const Ahead*) {
  for (std::size_t j = 0; j < n_rows; ++j) scores[j] = dot(q, rows + j * d, d);
}

void matrix_vector(const float* x, const Half* rows, std::size_t n_rows, std::size_t d, float* out) {
  gemv_rows(x, rows, n_rows, d, out, nullptr);
}

void matrix_vector(const float* x, const Bf16* rows, std::size_t n_rows, std::size_t d, float* out) {
  for (std::size_t j = 0; j < n_rows; ++j) {
    out[j] = 0;
    for (std::size_t i = 0; i < d; ++i) out[j] += x[i] * to_float(rows[j * d + i]);
  }
}

void widen(const Bf16* in, float* out, std::size_t n) { std::transform(in, in + n, out, to_float); }

void gemv_rows_group(const float* q, std::size_t group, const Half* rows, std::size_t n_rows, std::size_t d,
                     float* scores, std::size_t stride, const Ahead*) {
  for (std::size_t g = 0; g < group; ++g) gemv_rows(q + g * d, rows, n_rows, d, scores + g * stride);
}

void axpy(float w, const Half* row, float* out, std::size_t d) {
  for (std::size_t i = 0; i < d; ++i) out[i] += w * half_to_float(row[i]);
}

void accumulate_rows(const float* weights, const Half* rows, std::size_t n_rows, std::size_t d, float* out,
                     const Ahead*) {
  for (std::size_t j = 0; j < n_rows; ++j) axpy(weights[j], rows + j * d, out, d);
}

void accumulate_rows_group(const float* weights, std::size_t stride, std::size_t group, const Half* rows,
                           std::size_t n_rows, std::size_t d, float* out, const Ahead*) {
  for (std::size_t g = 0; g < group; ++g) accumulate_rows(weights + g * stride, rows, n_rows, d, out + g * d);
}

float exp_shifted(float* x, std::size_t n, float shift) {
  float sum = 0;
  for (std::size_t i = 0; i < n; ++i) sum += x[i] = std::exp(x[i] - shift);
  return sum;
}

float max_value(const float* x, std::size_t n) {
  return n == 0 ? -std::numeric_limits<float>::infinity() : *std::max_element(x, x + n);
}

void prefetch(const Half*, std::size_t) {}

void widen(const Half* in, float* out, std::size_t n) { std::transform(in, in + n, out, half_to_float); }
void narrow(const float* in, Half* out, std::size_t n) { std::transform(in, in + n, out, float_to_half); }

const char* target_name() { return "plain"; }

}  // namespace csdsim::simd
