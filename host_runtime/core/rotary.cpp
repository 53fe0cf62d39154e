#include "host_runtime/core/rotary.h"

#include <cmath>
#include <numbers>

namespace csdsim::host {
namespace {

// High frequencies stay, low ones turn `factor` times slower, and those between are blended.
float scaled(float frequency, const Llama3RopeScaling& scaling) {
  const auto original = static_cast<float>(scaling.original_positions);
  const float wavelength = 2 * std::numbers::pi_v<float> / frequency;
  if (wavelength < original / scaling.high_frequency_factor) return frequency;
  if (wavelength > original / scaling.low_frequency_factor) return frequency / scaling.factor;
  const float smooth = (original / wavelength - scaling.low_frequency_factor) /
                       (scaling.high_frequency_factor - scaling.low_frequency_factor);
  return (1 - smooth) * frequency / scaling.factor + smooth * frequency;
}

}  // namespace

std::vector<float> inverse_frequencies(const RotaryPositions& rotary, std::uint32_t head_dim) {
  std::vector<float> frequencies;
  for (std::uint32_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(rotary.theta, exponent);
    frequencies.push_back(rotary.scaling ? scaled(frequency, *rotary.scaling) : frequency);
  }
  return frequencies;
}

}  // namespace csdsim::host
