#include "host_runtime/core/decoder/rotary.h"

#include <algorithm>
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

/// Pair of a head that turns `rotations` times over the original context. Computed in double precision, as in
/// transformers.
double pair_that_turns(double rotations, const YarnRopeScaling& scaling, float theta, std::uint32_t head_dim) {
  return head_dim * std::log(scaling.original_positions / (rotations * 2 * std::numbers::pi)) /
         (2 * std::log(double{theta}));
}

/// The share of each pair's own frequency that stays: 1 for fast pairs, 0 for slow ones, a ramp between.
std::vector<float> kept_shares(const YarnRopeScaling& scaling, float theta, std::uint32_t head_dim) {
  double low = pair_that_turns(scaling.beta_fast, scaling, theta, head_dim),
         high = pair_that_turns(scaling.beta_slow, scaling, theta, head_dim);
  if (scaling.truncate) low = std::floor(low), high = std::ceil(high);
  low = std::max(low, 0.0);
  high = std::min(high, head_dim - 1.0);
  if (low == high) high += 0.001;
  std::vector<float> shares;
  for (std::uint32_t i = 0; i < head_dim / 2; ++i) {
    const float ramp = (static_cast<float>(i) - static_cast<float>(low)) / static_cast<float>(high - low);
    shares.push_back(1 - std::clamp(ramp, 0.0f, 1.0f));
  }
  return shares;
}

/// The base for a sequence of `context` tokens.
float base_at(const RotaryPositions& rotary, std::uint32_t head_dim, std::uint32_t context) {
  if (!rotary.changes_at(context)) return rotary.theta;
  const auto& [factor, positions] = std::get<DynamicRopeScaling>(rotary.scaling);
  const float longer = factor * static_cast<float>(context) / static_cast<float>(positions) - (factor - 1);
  return rotary.theta * std::pow(longer, static_cast<float>(head_dim) / static_cast<float>(head_dim - 2));
}

}  // namespace

std::vector<float> inverse_frequencies(const RotaryPositions& rotary, std::uint32_t head_dim, std::uint32_t context) {
  const float base = base_at(rotary, head_dim, context);
  std::vector<float> frequencies;
  for (std::uint32_t i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(base, exponent);
    frequencies.push_back(frequency);
  }
  if (const auto* const llama3 = std::get_if<Llama3RopeScaling>(&rotary.scaling)) {
    for (float& frequency : frequencies) frequency = scaled(frequency, *llama3);
  } else if (const auto* const linear = std::get_if<LinearRopeScaling>(&rotary.scaling)) {
    for (float& frequency : frequencies) frequency /= linear->factor;
  } else if (const auto* const yarn = std::get_if<YarnRopeScaling>(&rotary.scaling)) {
    const std::vector<float> kept = kept_shares(*yarn, rotary.theta, head_dim);
    for (std::size_t i = 0; i < frequencies.size(); ++i)
      frequencies[i] = frequencies[i] / yarn->factor * (1 - kept[i]) + frequencies[i] * kept[i];
  }
  return frequencies;
}

}  // namespace csdsim::host
