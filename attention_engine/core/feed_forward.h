// The feed-forward network of chosen neurons, as the engine computes it: fp16 inputs and weights, fp32 arithmetic, the
// neurons in the order of a list. A drive and whoever checks it call these functions, so both get the same bits.
#pragma once

#include <cstdint>
#include <span>

#include "base/fp16.h"
#include "base/units.h"

namespace csdsim::engine {

enum class Activation : std::uint8_t {
  relu,  ///< max(v, 0)
  silu   ///< v / (1 + exp(-v))
};

struct FeedForwardShape {
  std::uint32_t tokens = 1;  ///< n, at least 1
  std::uint32_t width = 0;   ///< D, at least 1
  Activation activation = Activation::relu;
  /// Three rows per neuron: the activation of the gate row is multiplied with the up row.
  bool gated = false;
  /// Activations of at most this value become 0 (FATReLU). 0 changes nothing for relu; -infinity keeps all of silu.
  float threshold = 0;

  constexpr std::uint32_t matrices() const { return gated ? 3 : 2; }
  /// fp16 elements of a neuron's rows: up, gate (if any), down.
  constexpr std::size_t row_elements() const { return std::size_t{matrices()} * width; }
  /// Multiply-accumulates of a neuron for all tokens: 2 D each, or 3 D.
  constexpr std::uint64_t macs() const { return std::uint64_t{matrices()} * width * tokens; }
};

/// The activation function with its threshold. NaN passes through.
float activate(const FeedForwardShape& shape, float value);

/// y[t] += sum over the neurons r, in their order, of h_r[t] * down_r, in fp32. Two matrices: h = act(x . up + b).
/// Gated: h = act(x . gate + b) * (x . up). x is [n][D], `rows` is [neuron][up, gate, down][D], `bias` is [neuron] or
/// empty for 0, y is [n][D]. Each dot product has the summation order of simd::dot(). InternalError if the sizes
/// disagree.
void feed_forward(const FeedForwardShape& shape, std::span<const Half> x, std::span<const Half> rows,
                  std::span<const Half> bias, std::span<float> y);

}  // namespace csdsim::engine
