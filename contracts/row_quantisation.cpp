#include "contracts/row_quantisation.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/rounding.h"
#include "contracts/quantised_integers.h"

namespace csdsim {

namespace {

int largest_integer(std::uint32_t bits) { return (1 << (bits - 1)) - 1; }

int nearest_integer(float value, float scale, int most) {
  return scale == 0 ? 0 : std::clamp(static_cast<int>(std::lround(value / scale)), -most, most);
}

float largest_of(std::span<const float> values) {
  float largest = 0;
  for (const float value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

/// True if integers with this scale stand for exactly these values.
bool stand_for(std::span<const float> values, float scale, int most) {
  return std::ranges::all_of(values, [&](float value) {
    const float made = static_cast<float>(nearest_integer(value, scale, most)) * scale;
    return half_to_float(float_to_half(made)) == value;
  });
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

namespace {

/// `scale_of` says the stored scale of a group of values.
template <class ScaleOf>
void write_row(const RowQuantisation& format, std::span<const float> values, std::span<std::byte> to,
               const ScaleOf& scale_of) {
  check(format);
  std::ranges::fill(to, std::byte{0});
  const int most = largest_integer(format.bits);
  std::byte* scales = to.data() + integer_bytes(format.bits, values.size());
  for (std::size_t first = 0; first < values.size(); first += format.group, scales += sizeof(Half)) {
    const auto group = values.subspan(first, std::min<std::size_t>(format.group, values.size() - first));
    const Half stored = scale_of(group, most);
    std::memcpy(scales, &stored, sizeof stored);
    const float scale = half_to_float(stored);
    for (std::size_t i = 0; i < group.size(); ++i)
      set_integer(to, format.bits, first + i, nearest_integer(group[i], scale, most));
  }
}

Half scale_of(std::span<const float> values, int most) {
  return float_to_half(largest_of(values) / static_cast<float>(most));
}

}  // namespace

void RowQuantisation::quantise(std::span<const float> values, std::span<std::byte> to) const {
  write_row(*this, values, to, scale_of);
}

// The largest value was rounded to fp16, so that its scale may be off by one unit in the last place.
void RowQuantisation::restore(std::span<const Half> values, std::span<std::byte> to) const {
  std::vector<float> wide(values.size());
  halves_to_floats(values, wide);
  write_row(*this, wide, to, [](std::span<const float> of_scale, int most) {
    const Half near = scale_of(of_scale, most);
    for (const int step : {0, 1, -1}) {
      const auto scale = static_cast<Half>(near + step);
      if (near + step >= 0 && stand_for(of_scale, half_to_float(scale), most)) return scale;
    }
    throw InternalError("values are not those of quantised rows");
  });
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

void dequantise_rows(const RowQuantisation& format, std::span<const std::byte> rows, std::size_t elements,
                     std::span<Half> to) {
  const std::size_t row = format.row(elements, sizeof(Half)).value;
  std::vector<float> values(elements);
  for (; !rows.empty(); rows = rows.subspan(row), to = to.subspan(elements)) {
    format.dequantise(rows.first(row), values);
    floats_to_halves(values, to.first(elements));
  }
}

}  // namespace csdsim
