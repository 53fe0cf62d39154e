// Division by a number that is only known at construction, for hot paths.
#pragma once

#include <bit>
#include <cstdint>

namespace csdsim {

/// Exact quotient n / d for all n < 2^63 with one multiplication (Granlund and Montgomery, PLDI 1994, theorem 4.2 with
/// N = 63: m = ceil(2^(63+l) / d) fits 64 bits for l = ceil(log2 d), and n / d = n m / 2^(63+l)). The upper half of the
/// product of 2 n and m is n m / 2^63: the processor leaves it in a register of its own.
class FixedDivisor {
 public:
  /// `divisor` is in 1 .. 2^63.
  explicit constexpr FixedDivisor(std::uint64_t divisor)
      : shift_(static_cast<int>(std::bit_width(divisor - 1))),
        multiplier_(static_cast<std::uint64_t>(((static_cast<unsigned __int128>(1) << (63 + shift_)) + divisor - 1) /
                                               divisor)) {}

  constexpr std::uint64_t quotient(std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(2 * n) * multiplier_) >> 64) >> shift_;
  }

 private:
  int shift_;
  std::uint64_t multiplier_;
};

}  // namespace csdsim
