#include "attention_engine/core/feed_forward.h"

#include <cmath>
#include <vector>

#include "base/error.h"
#include "base/simd.h"

namespace csdsim::engine {

float activate(const FeedForwardShape& shape, float value) {
  const float active = shape.activation == Activation::silu ? value / (1.0f + std::exp(-value))
                       : value < 0                          ? 0.0f
                                                            : value;
  return active < shape.threshold ? 0.0f : active;
}

void feed_forward(const FeedForwardShape& shape, std::span<const Half> x, std::span<const Half> rows,
                  std::span<const Half> bias, std::span<float> y) {
  const std::size_t width = shape.width, elements = std::size_t{shape.tokens} * width;
  const std::size_t neurons = shape.row_elements() == 0 ? 0 : rows.size() / shape.row_elements();
  if (x.size() != elements || y.size() != elements || neurons * shape.row_elements() != rows.size() ||
      (!bias.empty() && bias.size() != neurons))
    throw InternalError("feed-forward: x and y must be [tokens][width], rows [neurons][matrices][width]");
  std::vector<float> wide(elements);
  simd::widen(x.data(), wide.data(), elements);
  for (std::size_t r = 0; r < neurons; ++r) {
    const Half* const up = rows.data() + r * shape.row_elements();
    const Half* const gate = shape.gated ? up + width : nullptr;
    const Half* const down = up + (shape.matrices() - 1) * width;
    const float b = bias.empty() ? 0.0f : half_to_float(bias[r]);
    for (std::size_t t = 0; t < shape.tokens; ++t) {
      const float* const in = wide.data() + t * width;
      float h = activate(shape, simd::dot(in, gate != nullptr ? gate : up, width) + b);
      // A neuron that does not fire adds nothing, also where its other rows hold infinities.
      if (h == 0) continue;
      if (gate != nullptr) h *= simd::dot(in, up, width);
      simd::axpy(h, down, y.data() + t * width, width);
    }
  }
}

}  // namespace csdsim::engine
