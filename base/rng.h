// Seeded random numbers that are the same on every platform: no std::distribution, whose results are
// implementation-defined.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace csdsim {

/// One step of SplitMix64 (Steele, Lea, Flood 2014): a bijection of 64 bits that mixes well.
constexpr std::uint64_t splitmix64(std::uint64_t x) {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

/// FNV-1a, 64 bits.
constexpr std::uint64_t fnv1a64(std::string_view text) {
  std::uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3ULL;
  return hash;
}

/// A random number that depends on (seed, counter) only: for draws whose order must not matter.
constexpr std::uint64_t counter_random(std::uint64_t seed, std::uint64_t counter) {
  return splitmix64(splitmix64(seed) ^ splitmix64(~counter));
}

/// xoshiro256** 1.0 (Blackman, Vigna 2018), seeded with SplitMix64. Each purpose takes its own named stream, so that an
/// additional draw in one place changes nothing elsewhere.
class Rng {
 public:
  using result_type = std::uint64_t;

  /// The four state words are the SplitMix64 sequence that starts at `seed`, as its authors recommend.
  explicit constexpr Rng(std::uint64_t seed) {
    for (auto& word : state_) {
      word = splitmix64(seed);
      seed += 0x9E3779B97F4A7C15ULL;
    }
  }
  /// Stream `name` of a run's seed.
  constexpr Rng(std::uint64_t seed, std::string_view name) : Rng(splitmix64(seed) ^ fnv1a64(name)) {}

  static constexpr std::uint64_t min() { return 0; }
  static constexpr std::uint64_t max() { return ~std::uint64_t{0}; }

  constexpr std::uint64_t operator()() { return next(); }
  constexpr std::uint64_t next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t t = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= t;
    state_[3] = std::rotl(state_[3], 45);
    return result;
  }

  /// Uniform in [0, n) without bias (Lemire 2019). Precondition: n is not zero.
  constexpr std::uint64_t below(std::uint64_t n) {
    auto product = static_cast<unsigned __int128>(next()) * n;
    auto low = static_cast<std::uint64_t>(product);
    if (low < n) {
      const std::uint64_t threshold = (0 - n) % n;
      while (low < threshold) {
        product = static_cast<unsigned __int128>(next()) * n;
        low = static_cast<std::uint64_t>(product);
      }
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

  /// Uniform in [0, 2^53).
  constexpr std::uint64_t bits53() { return next() >> 11; }

  /// Uniform in [0, 1), a multiple of 2^-53.
  constexpr double unit() { return static_cast<double>(bits53()) * 0x1p-53; }

 private:
  std::uint64_t state_[4]{};
};

}  // namespace csdsim
