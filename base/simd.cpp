#include "base/simd.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

// Vectors as array elements and a compile-time lane count rule out targets of unknown vector length.
#define HWY_DISABLED_TARGETS (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "base/simd.cpp"
#include <hwy/foreach_target.h>
// foreach_target.h comes first: it decides which targets highway.h is compiled for.
#include <hwy/cache_control.h>
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

#include "base/simd_dispatch.h"
#include "base/simd_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace csdsim::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// Brings `count` halves towards the L1 cache.
HWY_INLINE void prefetch_halves(const Half* p, std::size_t count) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(p);
  for (std::size_t b = 0; b < count * sizeof(Half); b += 64) hwy::Prefetch(bytes + b);
}

/// Prefetches the share of `ahead` that belongs to rows [first, last).
HWY_INLINE void prefetch_ahead(const Ahead& ahead, std::size_t first, std::size_t last, std::size_t d) {
  constexpr std::size_t kLine = 64 / sizeof(Half);
  for (std::size_t line = first * d / kLine; line < last * d / kLine; ++line) {
    hwy::Prefetch(ahead.streams[line % 4] + line / 4 * kLine);
  }
}

// One accumulator per row, vectors in ascending order: the order that dot() and gemv_rows() share. Rows in a block only
// add instruction-level parallelism. kRows is a power of two.
template <std::size_t kRows>
HWY_INLINE void dot_block(const float* q, const Half* rows, std::size_t d, float* scores) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  VF acc[kRows];
  for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::Zero(tag);
  std::size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    const VF qv = hn::LoadU(tag, q + i);
    for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::MulAdd(qv, load_half(rows + j * d + i), acc[j]);
  }
  if (i < d) {
    const VF qv = load_tail(q + i, d - i);
    for (std::size_t j = 0; j < kRows; ++j) acc[j] = hn::MulAdd(qv, load_half_tail(rows + j * d + i, d - i), acc[j]);
  }
  store_sums<kRows>(acc, scores);
}

// dot_block() for kQueries queries: a row's elements are widened once for all of them.
template <std::size_t kQueries, std::size_t kRows>
HWY_INLINE void dot_tile(const float* q, const Half* rows, std::size_t d, float* scores, std::size_t stride) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  VF acc[kQueries][kRows];
  for (std::size_t g = 0; g < kQueries; ++g) {
    for (std::size_t j = 0; j < kRows; ++j) acc[g][j] = hn::Zero(tag);
  }
  const auto step = [&](const VF* query, const VF* row) HWY_ATTR {
    for (std::size_t g = 0; g < kQueries; ++g) {
      for (std::size_t j = 0; j < kRows; ++j) acc[g][j] = hn::MulAdd(query[g], row[j], acc[g][j]);
    }
  };
  VF query[kQueries], row[kRows];
  std::size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    for (std::size_t g = 0; g < kQueries; ++g) query[g] = hn::LoadU(tag, q + g * d + i);
    for (std::size_t j = 0; j < kRows; ++j) row[j] = load_half(rows + j * d + i);
    step(query, row);
  }
  if (i < d) {
    for (std::size_t g = 0; g < kQueries; ++g) query[g] = load_tail(q + g * d + i, d - i);
    for (std::size_t j = 0; j < kRows; ++j) row[j] = load_half_tail(rows + j * d + i, d - i);
    step(query, row);
  }
  for (std::size_t g = 0; g < kQueries; ++g) store_sums<kRows>(acc[g], scores + g * stride);
}

float dot(const float* q, const Half* row, std::size_t d) {
  float score;
  dot_block<1>(q, row, d, &score);
  return score;
}

void gemv_rows(const float* q, const Half* rows, std::size_t n_rows, std::size_t d, float* scores, const Ahead* ahead) {
  const std::size_t distance = 1024 / (sizeof(Half) * std::max<std::size_t>(d, 1));
  std::size_t j = 0;
  for (; j + 8 <= n_rows; j += 8) {
    if (ahead != nullptr) {
      prefetch_ahead(*ahead, j, j + 8, d);
    } else if (j + distance + 8 <= n_rows) {
      prefetch_halves(rows + (j + distance) * d, 8 * d);
    }
    dot_block<8>(q, rows + j * d, d, scores + j);
  }
  for (; j < n_rows; ++j) dot_block<1>(q, rows + j * d, d, scores + j);
}

void gemv_rows_group(const float* q, std::size_t group, const Half* rows, std::size_t n_rows, std::size_t d,
                     float* scores, std::size_t stride, const Ahead* ahead) {
  // Qualified, as Ahead brings in the function that dispatches to this one.
  if (group == 1) return HWY_NAMESPACE::gemv_rows(q, rows, n_rows, d, scores, ahead);
  std::size_t j = 0;
  for (; j + 4 <= n_rows; j += 4) {
    if (ahead != nullptr) prefetch_ahead(*ahead, j, j + 4, d);
    std::size_t g = 0;
    for (; g + 4 <= group; g += 4) dot_tile<4, 4>(q + g * d, rows + j * d, d, scores + g * stride + j, stride);
    for (; g < group; ++g) dot_block<4>(q + g * d, rows + j * d, d, scores + g * stride + j);
  }
  for (; j < n_rows; ++j) {
    for (std::size_t g = 0; g < group; ++g) dot_block<1>(q + g * d, rows + j * d, d, scores + g * stride + j);
  }
}

// kVecs vectors of `out` stay in registers while the rows stream by. `first` is the place of rows[0] among those that
// `ahead` counts.
template <std::size_t kVecs>
HWY_INLINE void accumulate_columns(const float* weights, const Half* rows, std::size_t n_rows, std::size_t d,
                                   float* out, const Ahead* ahead, std::size_t first) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  VF acc[kVecs];
  for (std::size_t v = 0; v < kVecs; ++v) acc[v] = hn::LoadU(tag, out + v * lanes);
  for (std::size_t j = 0; j < n_rows; ++j) {
    const VF w = hn::Set(tag, weights[j]);
    if (ahead != nullptr) prefetch_ahead(*ahead, first + j, first + j + 1, d);
    for (std::size_t v = 0; v < kVecs; ++v) acc[v] = hn::MulAdd(w, load_half(rows + j * d + v * lanes), acc[v]);
  }
  for (std::size_t v = 0; v < kVecs; ++v) hn::StoreU(acc[v], tag, out + v * lanes);
}

// accumulate_columns() for kQueries outputs [kQueries][d].
template <std::size_t kQueries, std::size_t kVecs>
HWY_INLINE void accumulate_tile(const float* weights, std::size_t stride, const Half* rows, std::size_t n_rows,
                                std::size_t d, float* out, const Ahead* ahead, std::size_t first) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  VF acc[kQueries][kVecs];
  for (std::size_t g = 0; g < kQueries; ++g) {
    for (std::size_t v = 0; v < kVecs; ++v) acc[g][v] = hn::LoadU(tag, out + g * d + v * lanes);
  }
  for (std::size_t j = 0; j < n_rows; ++j) {
    if (ahead != nullptr) prefetch_ahead(*ahead, first + j, first + j + 1, d);
    VF row[kVecs];
    for (std::size_t v = 0; v < kVecs; ++v) row[v] = load_half(rows + j * d + v * lanes);
    for (std::size_t g = 0; g < kQueries; ++g) {
      const VF w = hn::Set(tag, weights[g * stride + j]);
      for (std::size_t v = 0; v < kVecs; ++v) acc[g][v] = hn::MulAdd(w, row[v], acc[g][v]);
    }
  }
  for (std::size_t g = 0; g < kQueries; ++g) {
    for (std::size_t v = 0; v < kVecs; ++v) hn::StoreU(acc[g][v], tag, out + g * d + v * lanes);
  }
}

// Columns [i, d) of one output. The first pass asks for what lies ahead.
HWY_INLINE void accumulate_from(std::size_t i, const float* weights, const Half* rows, std::size_t n_rows,
                                std::size_t d, float* out, const Ahead* ahead, std::size_t first) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  const auto once = [&ahead] { return std::exchange(ahead, nullptr); };
  for (; i + 8 * lanes <= d; i += 8 * lanes)
    accumulate_columns<8>(weights, rows + i, n_rows, d, out + i, once(), first);
  for (; i + 4 * lanes <= d; i += 4 * lanes)
    accumulate_columns<4>(weights, rows + i, n_rows, d, out + i, once(), first);
  for (; i + lanes <= d; i += lanes) accumulate_columns<1>(weights, rows + i, n_rows, d, out + i, once(), first);
  if (i < d) {
    VF acc = load_tail(out + i, d - i);
    for (std::size_t j = 0; j < n_rows; ++j) {
      acc = hn::MulAdd(hn::Set(tag, weights[j]), load_half_tail(rows + j * d + i, d - i), acc);
    }
    store_tail(acc, out + i, d - i);
  }
}

void accumulate_rows_group(const float* weights, std::size_t stride, std::size_t group, const Half* rows,
                           std::size_t n_rows, std::size_t d, float* out, const Ahead* ahead) {
  const std::size_t width = 4 * hn::Lanes(F32());
  // Rows in blocks that stay in the L1 cache between the passes; `out` is stored and reloaded exactly.
  const std::size_t block = std::max<std::size_t>(1, 16384 / (sizeof(Half) * std::max<std::size_t>(d, 1)));
  for (std::size_t first = 0; first < n_rows; first += block) {
    const std::size_t count = std::min(block, n_rows - first);
    const Half* const r = rows + first * d;
    const Ahead* rest = ahead;
    const auto once = [&rest] { return std::exchange(rest, nullptr); };
    std::size_t g = 0;
    for (; g + 4 <= group; g += 4) {
      const float* const w = weights + g * stride + first;
      std::size_t i = 0;
      for (; i + width <= d; i += width)
        accumulate_tile<4, 4>(w, stride, r + i, count, d, out + g * d + i, once(), first);
      for (std::size_t one = 0; one < 4; ++one) {
        accumulate_from(i, w + one * stride, r, count, d, out + (g + one) * d, once(), first);
      }
    }
    for (; g < group; ++g) accumulate_from(0, weights + g * stride + first, r, count, d, out + g * d, once(), first);
  }
}

void accumulate_rows(const float* weights, const Half* rows, std::size_t n_rows, std::size_t d, float* out,
                     const Ahead* ahead) {
  HWY_NAMESPACE::accumulate_rows_group(weights, 0, 1, rows, n_rows, d, out, ahead);
}

void axpy(float w, const Half* row, float* out, std::size_t d) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  const VF wv = hn::Set(tag, w);
  std::size_t i = 0;
  for (; i + lanes <= d; i += lanes) {
    hn::StoreU(hn::MulAdd(wv, load_half(row + i), hn::LoadU(tag, out + i)), tag, out + i);
  }
  if (i < d) {
    store_tail(hn::MulAdd(wv, load_half_tail(row + i, d - i), load_tail(out + i, d - i)), out + i, d - i);
  }
}

float exp_shifted(float* x, std::size_t n, float shift) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  const VF s = hn::Set(tag, shift);
  VF sum = hn::Zero(tag);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VF e = hn::Exp(tag, hn::Sub(hn::LoadU(tag, x + i), s));
    hn::StoreU(e, tag, x + i);
    sum = hn::Add(sum, e);
  }
  float total = hn::GetLane(hn::SumOfLanes(tag, sum));
  if (i < n) {
    alignas(64) float padded[kMaxLanes];
    hn::Store(hn::Exp(tag, hn::Sub(load_tail(x + i, n - i), s)), tag, padded);
    for (std::size_t j = 0; i + j < n; ++j) total += x[i + j] = padded[j];
  }
  return total;
}

float max_value(const float* x, std::size_t n) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  VF best = hn::Set(tag, -std::numeric_limits<float>::infinity());
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) best = hn::Max(best, hn::LoadU(tag, x + i));
  float result = hn::GetLane(hn::MaxOfLanes(tag, best));
  for (; i < n; ++i) result = std::max(result, x[i]);
  return result;
}

void prefetch(const Half* p, std::size_t n) { prefetch_halves(p, n); }

void widen(const Half* in, float* out, std::size_t n) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(load_half(in + i), tag, out + i);
  for (; i < n; ++i) out[i] = half_to_float(in[i]);
}

void narrow(const float* in, Half* out, std::size_t n) {
  const F32 tag;
  const std::size_t lanes = hn::Lanes(tag);
  std::size_t i = 0;
  for (; i + lanes <= n; i += lanes) store_half(hn::LoadU(tag, in + i), out + i);
  for (; i < n; ++i) out[i] = float_to_half(in[i]);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace csdsim::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace csdsim::simd {

CSDSIM_SIMD_VARIANTS(dot);
CSDSIM_SIMD_VARIANTS(gemv_rows);
CSDSIM_SIMD_VARIANTS(gemv_rows_group);
CSDSIM_SIMD_VARIANTS(axpy);
CSDSIM_SIMD_VARIANTS(accumulate_rows);
CSDSIM_SIMD_VARIANTS(accumulate_rows_group);
CSDSIM_SIMD_VARIANTS(exp_shifted);
CSDSIM_SIMD_VARIANTS(max_value);
CSDSIM_SIMD_VARIANTS(prefetch);
CSDSIM_SIMD_VARIANTS(widen);
CSDSIM_SIMD_VARIANTS(narrow);
CSDSIM_SIMD_VARIANTS(target_name);

float dot(const float* q, const Half* row, std::size_t d) { return CSDSIM_SIMD_CALL(dot)(q, row, d); }
void gemv_rows(const float* q, const Half* rows, std::size_t n_rows, std::size_t d, float* scores, const Ahead* ahead) {
  CSDSIM_SIMD_CALL(gemv_rows)(q, rows, n_rows, d, scores, ahead);
}
void gemv_rows_group(const float* q, std::size_t group, const Half* rows, std::size_t n_rows, std::size_t d,
                     float* scores, std::size_t stride, const Ahead* ahead) {
  CSDSIM_SIMD_CALL(gemv_rows_group)(q, group, rows, n_rows, d, scores, stride, ahead);
}
void accumulate_rows_group(const float* weights, std::size_t stride, std::size_t group, const Half* rows,
                           std::size_t n_rows, std::size_t d, float* out, const Ahead* ahead) {
  CSDSIM_SIMD_CALL(accumulate_rows_group)(weights, stride, group, rows, n_rows, d, out, ahead);
}
void axpy(float w, const Half* row, float* out, std::size_t d) { CSDSIM_SIMD_CALL(axpy)(w, row, out, d); }
void accumulate_rows(const float* weights, const Half* rows, std::size_t n_rows, std::size_t d, float* out,
                     const Ahead* ahead) {
  CSDSIM_SIMD_CALL(accumulate_rows)(weights, rows, n_rows, d, out, ahead);
}
float exp_shifted(float* x, std::size_t n, float shift) { return CSDSIM_SIMD_CALL(exp_shifted)(x, n, shift); }
float max_value(const float* x, std::size_t n) { return CSDSIM_SIMD_CALL(max_value)(x, n); }
void prefetch(const Half* p, std::size_t n) { CSDSIM_SIMD_CALL(prefetch)(p, n); }
void widen(const Half* in, float* out, std::size_t n) { CSDSIM_SIMD_CALL(widen)(in, out, n); }
void narrow(const float* in, Half* out, std::size_t n) { CSDSIM_SIMD_CALL(narrow)(in, out, n); }
const char* target_name() { return CSDSIM_SIMD_CALL(target_name)(); }

}  // namespace csdsim::simd
#endif  // HWY_ONCE
