// The budget of SparF: how many components and tokens a compression ratio means.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/ratio.h"

namespace csdsim::host {

/// The paper does not define its ratio (docs/algorithms.md, Compression ratio). uniform: r = ratio d components and
/// k = ratio S tokens. traffic: r as for uniform, k such that S r + 2 k d = 2 ratio S d elements move per head.
enum class RatioMode : std::uint8_t { uniform, traffic };

/// Budget parameters of the user. r, k and local override the values that follow from the ratio.
struct SparfParameters {
  Ratio ratio = Ratio::of(1, 8);
  RatioMode mode = RatioMode::uniform;
  std::optional<std::uint32_t> r = {};      ///< components of q
  std::optional<std::uint32_t> k = {};      ///< tokens, for any context length
  std::optional<std::uint32_t> local = {};  ///< newest tokens that are always among the k; default k / 4
};

/// r, k and l of a head at any context length.
class SparfBudget {
 public:
  /// Throws UserError unless 0 < ratio <= 1, 1 <= r <= head_dim, k >= 1, and in mode traffic r leaves traffic for k.
  SparfBudget(const SparfParameters& parameters, std::uint32_t head_dim);

  std::uint32_t components() const { return r_; }
  /// k at a context of `tokens` (current one included): rounded half up, at least 1, at most the context.
  std::uint32_t top_k(std::uint32_t tokens) const;
  std::uint32_t local(std::uint32_t tokens) const;
  /// Elements moved relative to dense attention, (S r + 2 k d) / (2 S d), without the effect of page granularity.
  double traffic(std::uint32_t tokens) const;
  /// "r = 16 of 128, k = 192, l = 48 at 1536 tokens: 0.1875 of the dense elements". Part of every result.
  std::string describe(std::uint32_t tokens) const;

 private:
  std::uint32_t head_dim_;
  std::uint32_t r_;
  Ratio k_share_;
  std::optional<std::uint32_t> k_;
  std::optional<std::uint32_t> local_;
};

}  // namespace csdsim::host
