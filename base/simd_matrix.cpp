// Products with matrices of 16 bits that are read from memory.
#include <algorithm>

#include "base/simd.h"

#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/simd_matrix.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it decides which targets highway.h is compiled for.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "base/simd_dispatch.h"
#include "base/simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace csdsim::simd::HWY_NAMESPACE {

// Rows that are summed at the same time. They are far apart: a core reads from several places of memory faster than
// from one, because banks and prefetchers work side by side.
constexpr std::size_t kStreams = 8;

// dot_block() of kRows rows at distances of `apart` elements. What follows each row is prefetched, a cache line of each
// in turn.
template <std::size_t kRows, class Row>
HWY_INLINE void stream_block(const float* x, const Row* rows, std::size_t apart, std::size_t d, float* out) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  constexpr std::size_t kLine = 64 / sizeof(Row), kAhead = 512 / sizeof(Row);
  VF acc[kRows];
  for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::Zero(tag);
  const auto step = [&](std::size_t i) HWY_ATTR {
    const VF xv = hn::LoadU(tag, x + i);
    for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::MulAdd(xv, load_row(rows + j * apart + i), acc[j]);
  };
  std::size_t i = 0;
  for (; i + kLine <= d; i += kLine) {
    if constexpr (kRows > 1)
      for (std::size_t j = 0; j < kRows; ++j) hwy::Prefetch(rows + j * apart + i + kAhead);
    for (std::size_t at = i; at < i + kLine; at += lanes) step(at);
  }
  for (; i + lanes <= d; i += lanes) step(i);
  if (i < d) {
    const VF xv = load_tail(x + i, d - i);
    for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::MulAdd(xv, load_row_tail(rows + j * apart + i, d - i), acc[j]);
  }
  store_sums<kRows>(acc, out);
}

template <class Row>
HWY_INLINE void stream_rows(const float* x, const Row* rows, std::size_t n_rows, std::size_t d, float* out) {
  const std::size_t each = n_rows / kStreams;
  float sums[kStreams];
  for (std::size_t j = 0; j < each; ++j) {
    stream_block<kStreams>(x, rows + j * d, each * d, d, sums);
    for (std::size_t k = 0; k < kStreams; ++k) out[k * each + j] = sums[k];
  }
  for (std::size_t j = each * kStreams; j < n_rows; ++j) stream_block<1>(x, rows + j * d, 0, d, out + j);
}

void matrix_vector_half(const float* x, const Half* rows, std::size_t n_rows, std::size_t d, float* out) {
  stream_rows(x, rows, n_rows, d, out);
}
void matrix_vector_brain(const float* x, const Bf16* rows, std::size_t n_rows, std::size_t d, float* out) {
  stream_rows(x, rows, n_rows, d, out);
}

void widen_brain(const Bf16* in, float* out, std::size_t n) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_row(in + i), tag, out + i);
  for (; i < n; ++i) out[i] = to_float(in[i]);
}

}  // namespace csdsim::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace csdsim::simd {

CSDSIM_SIMD_VARIANTS(widen_brain);
CSDSIM_SIMD_VARIANTS(matrix_vector_half);
CSDSIM_SIMD_VARIANTS(matrix_vector_brain);

void widen(const Bf16* in, float* out, std::size_t n) { CSDSIM_SIMD_CALL(widen_brain)(in, out, n); }
void matrix_vector(const float* x, const Half* rows, std::size_t n_rows, std::size_t d, float* out) {
  CSDSIM_SIMD_CALL(matrix_vector_half)(x, rows, n_rows, d, out);
}
void matrix_vector(const float* x, const Bf16* rows, std::size_t n_rows, std::size_t d, float* out) {
  CSDSIM_SIMD_CALL(matrix_vector_brain)(x, rows, n_rows, d, out);
}

}  // namespace csdsim::simd
#endif  // HWY_ONCE
