#include "host_runtime/core/neurons/row_quantisation.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/fp16.h"
#include "base/rounding.h"

namespace csdsim::host {

namespace {

int largest_integer(std::uint32_t bits) { return (1 << (bits - 1)) - 1; }

std::uint64_t integer_bytes(std::uint32_t bits, std::uint64_t elements) { return ceil_div(elements * bits, 8); }

/// Element `i` of the integers at `row`.
int integer_at(std::span<const std::byte> row, std::uint32_t bits, std::size_t i) {
  if (bits == 8) return static_cast<std::int8_t>(row[i]);
  const auto pair = static_cast<unsigned>(row[i / 2]);
  const int nibble = static_cast<int>(i % 2 == 0 ? pair & 0xF : pair >> 4);
  return nibble < 8 ? nibble : nibble - 16;
}

void set_integer(std::span<std::byte> row, std::uint32_t bits, std::size_t i, int value) {
  if (bits == 8)
    row[i] = static_cast<std::byte>(value);
  else
    row[i / 2] |= static_cast<std::byte>((value & 0xF) << (i % 2 == 0 ? 0 : 4));
}

void check(const RowQuantisation& of) {
  if ((of.bits != 8 && of.bits != 4) || of.group == 0)
    throw InternalError("quantised rows have 4 or 8 bits, and groups");
}

}  // namespace

Bytes RowQuantisation::row(std::uint64_t elements, std::uint32_t element_bytes) const {
  if (!quantised()) return {elements * element_bytes};
  check(*this);
  return {integer_bytes(bits, elements) + ceil_div(elements, group) * sizeof(Half)};
}

void RowQuantisation::quantise(std::span<const float> values, std::span<std::byte> to) const {
  check(*this);
  std::ranges::fill(to, std::byte{0});
  const int most = largest_integer(bits);
  std::byte* scales = to.data() + integer_bytes(bits, values.size());
  for (std::size_t first = 0; first < values.size(); first += group, scales += sizeof(Half)) {
    const std::size_t end = std::min<std::size_t>(first + group, values.size());
    float largest = 0;
    for (std::size_t i = first; i < end; ++i) largest = std::max(largest, std::abs(values[i]));
    const Half stored = float_to_half(largest / static_cast<float>(most));
    std::memcpy(scales, &stored, sizeof stored);
    const float scale = half_to_float(stored);
    if (scale == 0) continue;
    for (std::size_t i = first; i < end; ++i)
      set_integer(to, bits, i, std::clamp(static_cast<int>(std::lround(values[i] / scale)), -most, most));
  }
}

void RowQuantisation::dequantise(std::span<const std::byte> row, std::span<float> values) const {
  check(*this);
  const std::byte* const scales = row.data() + integer_bytes(bits, values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    Half scale = 0;
    std::memcpy(&scale, scales + i / group * sizeof scale, sizeof scale);
    values[i] = static_cast<float>(integer_at(row, bits, i)) * half_to_float(scale);
  }
}

}  // namespace csdsim::host
