// IEEE 754 binary16 as a storage format: values are kept as uint16_t and widened to float for arithmetic.
#pragma once

#include <cstdint>
#include <span>

namespace csdsim {

/// A half-precision value in storage. Arithmetic happens in float.
using Half = std::uint16_t;

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
