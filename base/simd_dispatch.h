// Calls the variant of a function that is compiled for the best instruction set of this machine. Highway compiles the
// variants from its headers. Its own choice among them (HWY_DYNAMIC_DISPATCH) is a function of libhwy, which measures
// the resolution of a timer for milliseconds whenever it is loaded.
#pragma once

#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace csdsim::simd {

/// The instruction sets of this machine, each a bit of hwy/detect_targets.h. The lowest bit is the best. Of a processor
/// other than x86 it is the one that everything is compiled for.
std::int64_t machine_targets();
/// Those that functions may use: machine_targets(), unless use_targets() was called.
std::int64_t allowed_targets();
/// Functions that are called from now on use the best of these instruction sets of this machine: for tests. 0: of all.
void use_targets(std::int64_t targets);

// CSDSIM_SIMD_VARIANTS(f); lists the variants of a function, in the namespace around theirs. CSDSIM_SIMD_CALL(f)(...)
// calls one. Highway's tables have a place for each bit of a target; on x86 the first one is that of bit 0.
#if HWY_ARCH_X86 && (HWY_TARGETS & (HWY_TARGETS - 1)) != 0
/// The place of the variant in these tables; the last one is for any machine.
inline std::size_t variant() {
  const std::int64_t compiled = HWY_TARGETS;
  const auto targets = static_cast<std::uint64_t>((allowed_targets() & compiled) | HWY_STATIC_TARGET);
  return std::min<std::size_t>(static_cast<std::size_t>(std::countr_zero(targets)), HWY_MAX_DYNAMIC_TARGETS);
}
#define CSDSIM_SIMD_VARIANTS(f)                                                                                       \
  constexpr decltype(&HWY_STATIC_DISPATCH(f)) f##_variants[HWY_MAX_DYNAMIC_TARGETS + 1] = {HWY_CHOOSE_TARGET_LIST(f), \
                                                                                           HWY_CHOOSE_FALLBACK(f)}
#define CSDSIM_SIMD_CALL(f) f##_variants[variant()]
#else
#define CSDSIM_SIMD_VARIANTS(f) static_assert(true)
#define CSDSIM_SIMD_CALL(f) HWY_STATIC_DISPATCH(f)
#endif

}  // namespace csdsim::simd
