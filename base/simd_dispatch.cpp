#include "base/simd_dispatch.h"

#include <atomic>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace csdsim::simd {
namespace {

#if HWY_ARCH_X86

/// What Highway assumes of each of its instruction sets (hwy/targets.cc). The compiler's functions also ask whether the
/// operating system saves the registers.
std::int64_t find_targets() {
  __builtin_cpu_init();
  std::int64_t found = HWY_SCALAR;
  if (!__builtin_cpu_supports("ssse3")) return found;
  found |= HWY_SSSE3;
  if (!__builtin_cpu_supports("sse4.1") || !__builtin_cpu_supports("sse4.2") || !__builtin_cpu_supports("pclmul") ||
      !__builtin_cpu_supports("aes"))
    return found;
  found |= HWY_SSE4;
  // The names "f16c" and "lzcnt" are unknown to older compilers.
  unsigned a = 0, b = 0, basic = 0, extended = 0, d = 0;
  __get_cpuid(1, &a, &b, &basic, &d);
  __get_cpuid(0x80000001, &a, &b, &extended, &d);
  const bool f16c = (basic >> 29 & 1) != 0, lzcnt = (extended >> 5 & 1) != 0;
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !__builtin_cpu_supports("bmi") ||
      !__builtin_cpu_supports("bmi2") || !f16c || !lzcnt)
    return found;
  found |= HWY_AVX2;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    found |= HWY_AVX3;
  return found;
}

#else

std::int64_t find_targets() { return HWY_STATIC_TARGET; }

#endif

std::atomic<std::int64_t> used{0};  ///< the targets of use_targets()

}  // namespace

std::int64_t machine_targets() {
  static const std::int64_t found = find_targets();
  return found;
}

std::int64_t allowed_targets() {
  const std::int64_t chosen = used.load(std::memory_order_relaxed);
  return chosen == 0 ? machine_targets() : chosen & machine_targets();
}

void use_targets(std::int64_t targets) { used = targets; }

}  // namespace csdsim::simd
