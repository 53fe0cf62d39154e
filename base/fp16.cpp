#include "base/fp16.h"

#include <bit>
#include <cassert>

namespace csdsim {

float half_to_float(Half h) {
  const std::uint32_t sign = static_cast<std::uint32_t>(h & 0x8000u) << 16;
  const std::uint32_t exponent = (h >> 10) & 0x1Fu;
  const std::uint32_t mantissa = h & 0x3FFu;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000u | (mantissa << 13));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Subnormal: mantissa * 2^-24 is exact in float.
  const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
}

Half float_to_half(float f) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(f);
  const auto sign = static_cast<Half>((bits >> 16) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<Half>(sign | 0x7E00u);
  if (magnitude >= 0x47800000u) return static_cast<Half>(sign | 0x7C00u);  // >= 2^16
  if (magnitude < 0x38800000u) {                                           // below the smallest normal, 2^-14
    // Adding 0.5 puts the units of 2^-24 into the last mantissa bit: the FPU rounds to nearest even for us.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<Half>(sign | (std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u));
  }
  const std::uint32_t odd = (magnitude >> 13) & 1u;
  return static_cast<Half>(sign | ((magnitude - 0x38000000u + 0xFFFu + odd) >> 13));
}

void halves_to_floats(std::span<const Half> in, std::span<float> out) {
  assert(in.size() == out.size());
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = half_to_float(in[i]);
}

void floats_to_halves(std::span<const float> in, std::span<Half> out) {
  assert(in.size() == out.size());
  for (std::size_t i = 0; i < in.size(); ++i) out[i] = float_to_half(in[i]);
}

}  // namespace csdsim
