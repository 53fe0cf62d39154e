#include "attention_engine/core/top_k.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>

namespace csdsim::engine {
namespace {

/// Order-preserving map from float to integer. NaN maps below -inf, so that the order is total whatever the data are.
std::uint32_t rank(float key) {
  if (std::isnan(key)) return 0;
  const auto bits = std::bit_cast<std::uint32_t>(key + 0.0f);  // -0 becomes +0
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

}  // namespace

void TopK::select(std::span<const float> keys, std::uint32_t k, std::vector<std::uint32_t>& out) {
  const auto n = static_cast<std::uint32_t>(keys.size());
  const std::uint32_t count = std::min(k, n);
  ranked_.resize(n);
  for (std::uint32_t j = 0; j < n; ++j) ranked_[j] = std::uint64_t{rank(keys[j])} << 32 | (~j & 0xFFFFFFFFu);
  if (count < n) std::nth_element(ranked_.begin(), ranked_.begin() + count, ranked_.end(), std::greater<>());
  out.resize(count);
  for (std::uint32_t j = 0; j < count; ++j) out[j] = ~static_cast<std::uint32_t>(ranked_[j]);
  std::sort(out.begin(), out.end());
}

}  // namespace csdsim::engine
