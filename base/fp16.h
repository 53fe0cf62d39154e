// IEEE 754 binary16 as a storage format: values are kept as uint16_t and widened to float for arithmetic.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

namespace csdsim {

/// A half-precision value in storage. Arithmetic happens in float.
using Half = std::uint16_t;

/// A bfloat16 value in storage: the upper half of a float. A type of its own, so that it is not taken for a Half.
enum class Bf16 : std::uint16_t {};

/// Exact widening.
constexpr float to_float(Bf16 b) { return std::bit_cast<float>(std::uint32_t{static_cast<std::uint16_t>(b)} << 16); }

/// Exact widening.
float half_to_float(Half h);

/// Narrowing, round to nearest even; overflow gives infinity, NaN stays NaN.
Half float_to_half(float f);

/// Neither infinite nor NaN.
constexpr bool is_finite(Half h) { return (h & 0x7C00u) != 0x7C00u; }

/// Element-wise conversions; spans must have equal length.
void halves_to_floats(std::span<const Half> in, std::span<float> out);
void floats_to_halves(std::span<const float> in, std::span<Half> out);

}  // namespace csdsim
