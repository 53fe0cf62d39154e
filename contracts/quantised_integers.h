// Integers of 8 or 4 bits side by side, as rows and runs of few bits keep them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace csdsim {

/// Bytes of `count` integers side by side.
constexpr std::uint64_t integer_bytes(std::uint32_t bits, std::uint64_t count) { return (count * bits + 7) / 8; }

/// Integer `i` of those that start with the first byte; with 4 bits, the first of a byte is in its lower half.
inline int integer_at(std::span<const std::byte> integers, std::uint32_t bits, std::size_t i) {
  if (bits == 8) return static_cast<std::int8_t>(integers[i]);
  const auto pair = static_cast<unsigned>(integers[i / 2]);
  const int nibble = static_cast<int>(i % 2 == 0 ? pair & 0xF : pair >> 4);
  return nibble < 8 ? nibble : nibble - 16;
}

inline void set_integer(std::span<std::byte> integers, std::uint32_t bits, std::size_t i, int value) {
  if (bits == 8) {
    integers[i] = static_cast<std::byte>(value);
    return;
  }
  const unsigned shift = i % 2 == 0 ? 0 : 4;
  const unsigned other = static_cast<unsigned>(integers[i / 2]) & (0xF0U >> shift);
  integers[i / 2] = static_cast<std::byte>(other | (static_cast<unsigned>(value) & 0xFU) << shift);
}

}  // namespace csdsim
