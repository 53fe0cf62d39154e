// Number of tokens that a method may attend to: stated, or a share of the context.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/ratio.h"

namespace csdsim::host {

class TokenBudget {
 public:
  constexpr TokenBudget(std::uint32_t tokens) : tokens_(tokens) {}  // a bare number is a budget
  constexpr TokenBudget(csdsim::Ratio share) : share_(share) {}

  /// Number of tokens for a context of `context` tokens (the current one included): at most the context. A share is
  /// rounded half up and gives at least 1.
  constexpr std::uint32_t at(std::size_t context) const {
    const auto all = static_cast<std::uint32_t>(context);
    if (tokens_) return std::min(*tokens_, all);
    return static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(share_.round_of(all), std::min<std::uint64_t>(1, all), all));
  }
  constexpr bool is_zero() const { return tokens_ ? *tokens_ == 0 : share_.numerator == 0; }

 private:
  std::optional<std::uint32_t> tokens_;
  csdsim::Ratio share_;
};

}  // namespace csdsim::host
