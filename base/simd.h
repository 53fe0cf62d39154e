// The inner loops of attention over fp16 storage: fp32 arithmetic, dispatched to the best instruction set at run time.
//
// Every function has one summation order, fixed by the machine's vector width and the row length d: it does not depend
// on alignment, on the number of rows in a call, or on how rows are cut into calls. So scores computed page by page
// equal scores computed over one contiguous array, bit for bit.
#pragma once

#include <array>
#include <cstddef>

#include "base/fp16.h"

namespace csdsim::simd {

/// Memory that the caller will read after the rows that it passes now. While those rows are processed, as many bytes
/// are prefetched from the four streams together, one cache line of each in turn. Four streams side by side keep the
/// prefetchers of the L2 cache busy, which stop at 4 KiB boundaries; one stream after the other, scattered pages arrive
/// at half the speed.
struct Ahead {
  std::array<const Half*, 4> streams;
};

/// sum_i q[i] * row[i], i < d, fp32 FMA.
float dot(const float* q, const Half* row, std::size_t d);

/// scores[j] = dot(q, rows + j * d, d) for j < n_rows; bit-identical to calling dot(). `ahead` may be null.
void gemv_rows(const float* q, const Half* rows, std::size_t n_rows, std::size_t d, float* scores,
               const Ahead* ahead = nullptr);

/// out[j] = sum_i x[i] * rows[j * d + i], j < n_rows: a product with a matrix that is read from memory once. The order
/// of sums is that of gemv_rows().
void matrix_vector(const float* x, const Half* rows, std::size_t n_rows, std::size_t d, float* out);
void matrix_vector(const float* x, const Bf16* rows, std::size_t n_rows, std::size_t d, float* out);

/// gemv_rows() of `group` queries [group][d], whose scores of row j are scores[g * stride + j]: bit-identical to one
/// call per query, but rows are read and widened once for up to four queries.
void gemv_rows_group(const float* q, std::size_t group, const Half* rows, std::size_t n_rows, std::size_t d,
                     float* scores, std::size_t stride, const Ahead* ahead = nullptr);

/// out[i] += w * row[i], i < d, fp32 FMA.
void axpy(float w, const Half* row, float* out, std::size_t d);

/// out[i] += sum_j weights[j] * rows[j * d + i], j ascending; bit-identical to n_rows calls of axpy(). `ahead` may be
/// null.
void accumulate_rows(const float* weights, const Half* rows, std::size_t n_rows, std::size_t d, float* out,
                     const Ahead* ahead = nullptr);

/// accumulate_rows() into `group` outputs [group][d] with weights[g * stride + j]: bit-identical to one call per
/// output.
void accumulate_rows_group(const float* weights, std::size_t stride, std::size_t group, const Half* rows,
                           std::size_t n_rows, std::size_t d, float* out, const Ahead* ahead = nullptr);

/// x[i] = exp(x[i] - shift) in place, i < n; returns the sum of the results. -inf gives 0.
float exp_shifted(float* x, std::size_t n, float shift);

/// Largest x[i], i < n; -inf for n = 0. Unspecified if a value is NaN.
float max_value(const float* x, std::size_t n);

/// Hint: brings n halves towards the cache.
void prefetch(const Half* p, std::size_t n);

/// Exact widening; equal to half_to_float() on every non-NaN value.
void widen(const Half* in, float* out, std::size_t n);

void widen(const Bf16* in, float* out, std::size_t n);

/// Narrowing, round to nearest even; equal to float_to_half() on every non-NaN value.
void narrow(const float* in, Half* out, std::size_t n);

/// Name of the instruction set in use ("AVX3", "AVX2", ...), for reports.
const char* target_name();

}  // namespace csdsim::simd
