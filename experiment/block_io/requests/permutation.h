// A random permutation of [0, n) without a table.
#pragma once

#include <bit>
#include <cstdint>

#include "base/rng.h"

namespace csdsim::experiment::workload {

/// A seeded bijection of [0, n): a Feistel network of four rounds on the next even number of bits, repeated until the
/// value is below n (cycle walking: Black, Rogaway, "Ciphers with arbitrary finite domains", CT-RSA 2002). It needs
/// fewer than four repetitions on average.
class Permutation {
 public:
  /// Precondition: n is at least 1.
  Permutation(std::uint64_t n, std::uint64_t seed)
      : n_(n), seed_(seed), half_((static_cast<unsigned>(std::bit_width(n - 1)) + 1) / 2) {}

  /// Precondition: i < n.
  std::uint64_t operator()(std::uint64_t i) const {
    do {
      i = encrypt(i);
    } while (i >= n_);
    return i;
  }

 private:
  std::uint64_t encrypt(std::uint64_t value) const {
    const std::uint64_t mask = (std::uint64_t{1} << half_) - 1;
    std::uint64_t left = value >> half_, right = value & mask;
    for (std::uint64_t round = 0; round < 4; ++round) {
      const std::uint64_t mixed = left ^ (counter_random(seed_ + round, right) & mask);
      left = right;
      right = mixed;
    }
    return left << half_ | right;
  }

  std::uint64_t n_;
  std::uint64_t seed_;
  unsigned half_;
};

}  // namespace csdsim::experiment::workload
