// Rows of 16 bits as vectors of fp32, and the sums of their lanes: what simd.cpp and simd_matrix.cpp share, compiled
// once per instruction set.
#if defined(CSDSIM_BASE_SIMD_ROWS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef CSDSIM_BASE_SIMD_ROWS_INL_H
#undef CSDSIM_BASE_SIMD_ROWS_INL_H
#else
#define CSDSIM_BASE_SIMD_ROWS_INL_H
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>

#include "base/fp16.h"

HWY_BEFORE_NAMESPACE();
namespace csdsim::simd::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using F16 = hn::Rebind<hwy::float16_t, F32>;
using VF = hn::Vec<F32>;
// Lanes of a vector; exact, since scalable targets (SVE, RISC-V) are left out.
constexpr std::size_t kMaxLanes = hn::MaxLanes(F32());

// Without hardware conversion Highway's own is not exact for infinities and subnormals: use ours.
#if HWY_TARGET == HWY_SSE2 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_EMU128 || \
    HWY_TARGET == HWY_SCALAR
HWY_INLINE VF load_half(const Half* p) {
  alignas(64) float wide[kMaxLanes];
  for (std::size_t i = 0; i < hn::Lanes(F32()); ++i) wide[i] = half_to_float(p[i]);
  return hn::Load(F32(), wide);
}
HWY_INLINE void store_half(VF v, Half* p) {
  alignas(64) float wide[kMaxLanes];
  hn::Store(v, F32(), wide);
  for (std::size_t i = 0; i < hn::Lanes(F32()); ++i) p[i] = float_to_half(wide[i]);
}
#else
HWY_INLINE VF load_half(const Half* p) {
  return hn::PromoteTo(F32(), hn::LoadU(F16(), reinterpret_cast<const hwy::float16_t*>(p)));
}
HWY_INLINE void store_half(VF v, Half* p) {
  hn::StoreU(hn::DemoteTo(F16(), v), F16(), reinterpret_cast<hwy::float16_t*>(p));
}
#endif

HWY_INLINE VF load_row(const Half* p) { return load_half(p); }
HWY_INLINE VF load_row(const Bf16* p) {
  const hn::Rebind<std::uint32_t, F32> wide;
  const hn::Rebind<std::uint16_t, F32> narrow;
  const auto bits = hn::PromoteTo(wide, hn::LoadU(narrow, reinterpret_cast<const std::uint16_t*>(p)));
  return hn::BitCast(F32(), hn::ShiftLeft<16>(bits));
}

// A row's last d % lanes elements go through zero-filled local arrays, so they take the same vector instructions.
HWY_INLINE VF load_tail(const float* p, std::size_t count) {
  alignas(64) float padded[kMaxLanes] = {};
  std::memcpy(padded, p, count * sizeof(float));
  return hn::Load(F32(), padded);
}
template <class Row>
HWY_INLINE VF load_row_tail(const Row* p, std::size_t count) {
  alignas(64) Row padded[kMaxLanes] = {};
  std::memcpy(padded, p, count * sizeof(Row));
  return load_row(padded);
}
HWY_INLINE VF load_half_tail(const Half* p, std::size_t count) { return load_row_tail(p, count); }
HWY_INLINE void store_tail(VF v, float* p, std::size_t count) {
  alignas(64) float padded[kMaxLanes];
  hn::Store(v, F32(), padded);
  std::memcpy(p, padded, count * sizeof(float));
}

// Sums of the lanes of kCount vectors, adjacent lanes first: the same tree for one row and for a block of rows, where
// one addition folds two rows. kLeft partial sums per row remain in acc.
template <std::size_t kCount, std::size_t kLeft>
HWY_INLINE void fold_rows([[maybe_unused]] VF* acc) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (kLeft > 1) {
    const F32 tag;
    for (std::size_t v = 0; v < (kCount + 1) / 2; ++v) {
      const VF lo = acc[2 * v];
      const VF hi = kCount == 1 ? lo : acc[2 * v + 1];
      acc[v] = hn::Add(hn::ConcatEven(tag, hi, lo), hn::ConcatOdd(tag, hi, lo));
    }
    fold_rows<(kCount + 1) / 2, kLeft / 2>(acc);
  }
#endif
}

// The folded sums of kRows rows to `scores`.
template <std::size_t kRows>
HWY_INLINE void store_sums(VF* acc, float* scores) {
  const F32 tag;
  fold_rows<kRows, kMaxLanes>(acc);
  constexpr std::size_t kVectors = std::max<std::size_t>(1, kRows / kMaxLanes);
  alignas(64) float sums[kVectors * kMaxLanes];
  for (std::size_t v = 0; v < kVectors; ++v) hn::Store(acc[v], tag, sums + v * hn::Lanes(tag));
  std::memcpy(scores, sums, kRows * sizeof(float));
}

}  // namespace csdsim::simd::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
