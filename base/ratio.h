// Exact ratios: `1/8` and `0.07` are kept as fractions, so that a share of a count never depends on rounding of
// doubles.
#pragma once

#include <compare>
#include <cstdint>
#include <numeric>

namespace csdsim {

/// A non-negative fraction in lowest terms. The denominator is at least 1.
struct Ratio {
  std::uint64_t numerator = 0;
  std::uint64_t denominator = 1;

  /// Reduced fraction n/d. Precondition: d is not zero.
  static constexpr Ratio of(std::uint64_t n, std::uint64_t d) {
    const std::uint64_t g = std::gcd(n, d);
    return {n / g, d / g};
  }

  constexpr double value() const { return static_cast<double>(numerator) / static_cast<double>(denominator); }

  /// n times this ratio, rounded down. Exact in 128 bits; the product must fit in 64.
  constexpr std::uint64_t floor_of(std::uint64_t n) const {
    return static_cast<std::uint64_t>(static_cast<unsigned __int128>(n) * numerator / denominator);
  }
  /// n times this ratio, rounded to nearest, halves up.
  constexpr std::uint64_t round_of(std::uint64_t n) const {
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(n) * numerator * 2 + denominator) /
                                      (static_cast<unsigned __int128>(denominator) * 2));
  }

  friend constexpr bool operator==(const Ratio&, const Ratio&) = default;
  friend constexpr std::strong_ordering operator<=>(const Ratio& a, const Ratio& b) {
    const auto left = static_cast<unsigned __int128>(a.numerator) * b.denominator;
    const auto right = static_cast<unsigned __int128>(b.numerator) * a.denominator;
    return left < right ? std::strong_ordering::less
                        : (left > right ? std::strong_ordering::greater : std::strong_ordering::equal);
  }
};

}  // namespace csdsim
